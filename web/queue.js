// queue.js: jobs that wait, run or failed. The server keeps them, so they survive a reload and a restart.
import { $, el, emit, on, say, toast, copy, iconButton, secondsText, shortText, keep, recall } from './dom.js';
import { call, randomId } from './api.js';
import { state, isLive, isPaused, running, PAUSED } from './state.js';
import { jobFields } from './settings.js';
import { withTitle } from './images.js';

const DAY = 86400;
const ended = new Set(); // ids of jobs that are over
let dismissed = recall('dismissed', []); // ids of failed jobs that the visitor has seen

// ---- making pictures ----

let last = { text: '', time: 0, unsent: false };

// Queues a job with the settings of the form. more: fields that replace some of them. Two clicks in a moment are one, and so are
// those that come while the server does not answer.
export async function make(more = {}) {
  const fields = jobFields(more), text = JSON.stringify(fields);
  if (!fields.prompt) {
    $('prompt').setAttribute('aria-invalid', 'true');
    $('prompt').focus();
    return emit('problem', new Error('Write what the picture should show; a few words are enough.'));
  }
  if (text === last.text && (last.unsent || Date.now() - last.time < 700)) return;
  const mine = { text, time: Date.now(), unsent: false };
  last = mine;
  emit('problem', null);
  const key = randomId(), ignored = (names) => toast(`The server ignored: ${names}.`);
  try {
    const job = await send(fields, key, ignored, mine);
    if (!ended.has(job.id)) state.jobs.set(job.id, { ...job, ...state.jobs.get(job.id) });
    emit('view', { kind: 'job', id: job.id });
    say(isPaused(job) ? `The queue is ${PAUSED}.` : job.queue_position > 1 ? `Waiting; ${job.queue_position - 1} before it.` : 'The picture is being made.');
    draw();
  } catch (problem) {
    emit('problem', problem.status === 0 ? new Error('The server cannot be reached. If the picture is not in the queue later, press Make again.') : problem);
  }
}

// A request that got lost is sent again for five seconds with the same key, so that it is never queued twice.
async function send(fields, key, ignored, mine) {
  for (let attempt = 0; ; attempt++) {
    try {
      const job = await call('POST', '/jobs', { body: fields, headers: { 'idempotency-key': key }, ignored });
      if (mine.unsent) emit('problem', null);
      mine.unsent = false;
      return job;
    } catch (problem) {
      mine.unsent = problem.status === 0 && attempt < 3;
      if (!mine.unsent) throw problem;
      if (!attempt) emit('problem', Object.assign(new Error('The server does not answer. The picture is sent if it does in the next seconds.'), { code: 'unreachable' }));
      await new Promise((resolve) => setTimeout(resolve, 800 * (attempt + 1)));
    }
  }
}

export async function cancel(id) {
  const job = state.jobs.get(id);
  if (!job) return;
  try {
    take(await call('POST', `/jobs/${id}/cancel`));
    toast('Cancelled.', [['Make it after all', () => retry(id)]], 6);
  } catch (problem) {
    emit('problem', problem);
  }
}

async function retry(id) {
  try {
    const job = await call('POST', `/jobs/${id}/retry`);
    dismiss(id);
    take(job);
    emit('view', { kind: 'job', id: job.id });
  } catch (problem) {
    emit('problem', problem);
  }
}

async function first(id) {
  try {
    await call('POST', `/jobs/${id}/first`);
    refresh();
  } catch (problem) {
    emit('problem', problem);
  }
}

function dismiss(id) {
  dismissed = [id, ...dismissed].slice(0, 100);
  keep('dismissed', dismissed);
  state.jobs.delete(id);
  draw();
}

// ---- what the server says ----

function take(job) {
  if (job.error) job = { ...job, error: { ...job.error, message: withTitle(job.error.message, job) } };
  const before = state.jobs.get(job.id);
  const failed = job.status === 'failed' && job.created > Date.now() / 1000 - DAY && !dismissed.includes(job.id);
  if (isLive(job) || failed) state.jobs.set(job.id, { ...before, ...job });
  else state.jobs.delete(job.id);
  if (!isLive(job)) ended.add(job.id);
  if (failed && before && isLive(before)) emit('problem', Object.assign(new Error(job.error?.message ?? 'The picture failed.'), { job: job.id }));
  emit('job', { ...before, ...job });
  draw();
}

// Positions and times change when another job ends.
async function refresh() {
  const before = [...state.jobs.keys()];
  try {
    const lists = await Promise.all(['in_progress', 'queued', 'failed'].map((name) => call('GET', `/jobs?state=${name}&limit=${name === 'failed' ? 5 : 100}`)));
    const now = new Set(lists.flatMap((list) => list.jobs.map((job) => job.id)));
    for (const list of lists) for (const job of list.jobs.reverse()) if (!ended.has(job.id) || !isLive(job)) take(job);
    for (const id of before) if (!now.has(id) && state.jobs.has(id)) take(await call('GET', `/jobs/${id}`));
    draw();
  } catch { /* the stream of events will tell */ }
}

// ---- the list ----

function stateText(job) {
  const left = isPaused(job) ? ', paused' : job.eta_seconds > 0 ? `, ${secondsText(job.eta_seconds)}` : '';
  if (job.status === 'failed') return job.error?.message ?? 'failed';
  if (job.status === 'in_progress') return (job.steps ? `step ${Math.min(job.step + 1, job.steps)} of ${job.steps}` : 'begins') + left;
  return (job.queue_position > 1 ? `number ${job.queue_position}` : 'next') + left;
}

function row(job) {
  const prompt = job.settings?.prompt ?? '', name = shortText(prompt, 60), failed = job.status === 'failed';
  const open = el('button', { type: 'button', class: 'job-open', onclick: () => emit('view', { kind: 'job', id: job.id }), 'aria-label': `Show: ${name}` },
    job.preview ? el('img', { src: job.preview, alt: '' }) : el('span', { class: 'dot' }),
    el('span', {}, el('b', { text: name }), el('span', { class: 'soft', text: stateText(job) })));
  const buttons = failed
    ? [el('button', { type: 'button', class: 'quiet', text: 'Again', onclick: () => retry(job.id) }),
       el('button', { type: 'button', class: 'quiet', text: 'Copy', 'aria-label': 'Copy the error', onclick: () => copy(job.error?.message ?? '', 'The error was') }),
       iconButton('close', `Forget: ${name}`, () => dismiss(job.id))]
    : [job.queue_position > 1 ? iconButton('up', `Make next: ${name}`, () => first(job.id), 'Make it next') : null,
       iconButton('close', `Cancel: ${name}`, () => cancel(job.id), 'Cancel')];
  return el('li', { class: failed ? 'failed' : '', 'data-id': job.id }, open, ...buttons);
}

const order = { in_progress: 0, queued: 1, failed: 2 };
const sortedJobs = () => [...state.jobs.values()].sort((a, b) => order[a.status] - order[b.status] || a.queue_position - b.queue_position || a.created - b.created);

let drawing = 0;
function draw() {
  drawing ||= requestAnimationFrame(() => {
    drawing = 0;
    const jobs = sortedJobs(), waiting = jobs.filter((job) => job.status === 'queued').length, paused = state.about?.paused;
    const focused = document.activeElement?.closest('#queue-list li')?.dataset.id;
    const which = focused ? [...document.activeElement.parentElement.children].indexOf(document.activeElement) : -1;
    $('queue').hidden = !jobs.length && !paused;
    $('queue-clear').hidden = waiting < 2;
    $('queue-title').textContent = waiting || paused ? ['Queue', waiting && `${waiting} waiting`, paused && PAUSED].filter(Boolean).join(', ') : 'Now';
    $('queue-pause').hidden = !state.about?.admin || (!waiting && !paused);
    $('queue-pause').textContent = paused ? 'Resume' : 'Pause';
    $('queue-list').replaceChildren(...jobs.map(row));
    if (focused) $('queue-list').querySelector(`[data-id="${CSS.escape(focused)}"]`)?.children[which]?.focus();
  });
}

let told = -1; // quarter of the running picture that was said

function progress(event) {
  const job = state.jobs.get(event.id);
  if (!job) return;
  Object.assign(job, { status: 'in_progress', stage: event.stage, step: event.step, steps: event.steps, done: event.done, eta_seconds: event.eta_seconds, current: event.picture, queue_position: 0 });
  const quarter = Math.floor(event.done * 4);
  if (quarter !== told && quarter > 0 && quarter < 4) say(`${quarter * 25} percent`);
  told = quarter;
  emit('progress', job);
  draw();
}

function setPaused({ paused }) {
  if (state.about.paused === paused) return;
  state.about.paused = paused;
  say(paused ? `The queue is ${PAUSED}.` : 'The queue goes on.');
  emit('about');
  refresh(); // the times left
}

export async function startQueue() {
  on('about', draw);
  on('server:queue', setPaused);
  on('server:state', (job) => { take(job); if (!isLive(job)) refresh(); });
  on('server:progress', progress);
  on('server:preview', (event) => {
    const job = state.jobs.get(event.id);
    if (!job) return;
    job.preview = event.image;
    emit('preview', job);
  });
  $('queue-clear').addEventListener('click', async () => {
    const { cancelled } = await call('DELETE', '/jobs?state=queued');
    toast(`${cancelled} cancelled.`, [], 5);
    refresh();
  });
  $('queue-pause').addEventListener('click', async () => {
    try {
      setPaused(await call('POST', state.about.paused ? '/queue/resume' : '/queue/pause'));
    } catch (problem) {
      emit('problem', problem);
    }
  });
  $('cancel').addEventListener('click', () => { const job = state.jobs.get(state.view.id) ?? running(); if (job) cancel(job.id); });
  on('connected', refresh);
}
