// viewer.js: the stage: an empty page, the pictures of a job while they form, or one picture.
import { $, el, emit, on, secondsText, shortText } from './dom.js';
import { fileUrl } from './api.js';
import { state, picture, isLive, isPaused, PAUSED, canMask, takesImages } from './state.js';
import { neighbour, find } from './gallery.js';
import { size } from './settings.js';

const jobs = new Map(); // the last that was heard of each job, with its pictures, for the grid
let guest = null; // a picture that is shown and not in the list

export const shownPicture = () => (state.view.kind === 'picture' ? picture(state.view.id) ?? (guest?.id === state.view.id ? guest : null) : null);

// ---- frames ----

function frame(width, height, ...children) {
  const node = el('div', { class: 'frame' }, ...children);
  node.style.setProperty('--ratio', width / height);
  node.style.setProperty('--most', `${Math.max(width * 3, 560)}px`); // small pictures are not blown up without end
  return node;
}

function pictureFrame(p, whole) {
  const prompt = p.settings?.prompt ?? 'a picture';
  const image = el('img', { src: fileUrl(p.id), alt: prompt, width: p.width, height: p.height, draggable: false });
  if (whole) return frame(p.width, p.height, image);
  const open = el('button', { type: 'button', class: 'pick', 'aria-label': `Show: ${shortText(prompt, 100)}, seed ${p.seed}`, onclick: () => emit('view', { kind: 'picture', id: p.id }) }, image);
  return frame(p.width, p.height, open);
}

function formingFrame(job, live) {
  const s = job.settings ?? {}, w = s.width ?? size().width, h = s.height ?? size().height;
  const image = el('img', { class: 'forming', alt: live ? 'Preview of the picture' : '', src: live && job.preview ? job.preview : null, hidden: !(live && job.preview) });
  const node = frame(w, h, image);
  node.classList.add('waiting');
  node.classList.toggle('live', live);
  return node;
}

// ---- a job ----

function pictures(job) {
  return (job.pictures ?? []).map((p) => picture(p.id) ?? { ...p, settings: { ...job.settings, seed: p.seed } });
}

const countOf = (job) => Math.max(job.settings?.n ?? 1, Array.isArray(job.settings?.seed) ? job.settings.seed.length : 1);

function drawJob(job) {
  const done = pictures(job), n = countOf(job), cells = done.map((p) => pictureFrame(p, n === 1));
  if (isLive(job)) {
    for (let i = done.length; i < n; i++) cells.push(formingFrame(job, i === done.length));
  }
  if (job.status === 'failed') cells.push(el('p', { class: 'failed-note', text: job.error?.message ?? 'The picture failed.' }));
  if (job.status === 'cancelled' && !cells.length) cells.push(el('p', { class: 'failed-note soft', text: 'Cancelled.' }));
  const columns = Math.ceil(Math.sqrt(Math.max(1, cells.length)));
  $('frames').style.setProperty('--columns', columns);
  $('frames').style.setProperty('--rows', Math.ceil(cells.length / columns));
  delete $('frames').dataset.shown;
  $('frames').replaceChildren(...cells);
  drawProgress(job);
}

const STAGES = { text: 'Reading the prompt', encode: 'Looking at the images', decode: 'Finishing' };

function drawProgress(job) {
  const live = isLive(job);
  $('progress').hidden = !live;
  if (!live) return;
  const n = countOf(job), of = n > 1 ? `Picture ${(job.pictures?.length ?? 0) + 1} of ${n}, ` : '';
  const now = job.status === 'queued'
    ? isPaused(job) ? PAUSED : job.queue_position > 1 ? `Waiting, ${job.queue_position - 1} before it` : 'Waiting for its turn'
    : of + (STAGES[job.stage] ?? (job.steps ? `step ${Math.min(job.step + 1, job.steps)} of ${job.steps}` : 'begins'));
  $('stage-text').textContent = now[0].toUpperCase() + now.slice(1);
  $('stage-time').textContent = job.eta_seconds > 0 && !isPaused(job) ? `, ${secondsText(job.eta_seconds)} left` : '';
  const percent = job.status === 'in_progress' ? Math.round(100 * (job.done ?? 0)) : 0;
  $('meter').setAttribute('aria-valuenow', percent);
  $('meter').setAttribute('aria-valuetext', $('stage-text').textContent);
  $('meter-fill').style.width = percent + '%';
  document.title = job.status === 'in_progress' ? `${percent} % · Lazuli` : 'Waiting · Lazuli';
}

// ---- a picture ----

// The picture before stays until the next one is decoded.
async function putPicture(p) {
  if ($('frames').dataset.shown === p.id) return;
  const next = pictureFrame(p, true), first = !$('frames').firstElementChild;
  if (!first) await Promise.race([next.firstElementChild.decode().catch(() => {}), new Promise((resolve) => setTimeout(resolve, 2000))]);
  if (state.view.kind !== 'picture' || state.view.id !== p.id) return;
  $('frames').dataset.shown = p.id;
  $('frames').style.setProperty('--columns', 1);
  $('frames').style.setProperty('--rows', 1);
  $('frames').replaceChildren(next);
}

function drawPicture(p) {
  putPicture(p);
  $('caption').textContent = p.settings?.prompt ?? '';
  $('caption').title = p.settings?.prompt ?? '';
  $('do-pin').setAttribute('aria-pressed', String(p.pinned));
  $('do-pin').setAttribute('aria-label', p.pinned ? 'Unpin' : 'Pin');
  $('do-mask').hidden = !state.about?.models.some(canMask);
  $('use-image').hidden = !state.about?.models.some(takesImages);
}

function draw() {
  const { kind, id } = state.view, p = shownPicture(), job = kind === 'job' ? state.jobs.get(id) ?? jobs.get(id) : null;
  if (kind === 'job' && !job) state.view = { kind: 'empty' };
  const empty = !p && !job;
  $('empty').hidden = !empty;
  $('frames').hidden = empty;
  $('bar').hidden = !p;
  $('before').hidden = $('after').hidden = !p || state.pictures.length < 2;
  if (!job) $('progress').hidden = true;
  if (!job || !isLive(job)) document.title = 'Lazuli';
  if (p) {
    drawPicture(p);
    $('before').disabled = !neighbour(-1);
    $('after').disabled = !neighbour(1);
  } else if (job) drawJob(job);
  else {
    delete $('frames').dataset.shown;
    $('frames').replaceChildren();
  }
  emit('viewed', state.view);
}

export function go(by) {
  const next = neighbour(by);
  if (next) emit('view', { kind: 'picture', id: next.id });
}

// ---- what happens ----

function onJob(job) {
  const known = { ...jobs.get(job.id), ...job };
  jobs.set(job.id, known);
  if (jobs.size > 50) jobs.delete(jobs.keys().next().value);
  if (state.view.kind === 'job' && state.view.id === job.id) {
    const made = known.pictures ?? [];
    if (known.status === 'completed' && made.length === 1) emit('view', { kind: 'picture', id: made[0].id });
    else draw();
  } else if (state.view.kind === 'empty' && job.status === 'in_progress') emit('view', { kind: 'job', id: job.id });
}

function onPreview(job) {
  const image = $('frames').querySelector('.live .forming');
  if (state.view.id !== job.id || !image) return;
  image.src = job.preview;
  image.hidden = false;
}

function onPicture(p) {
  const job = jobs.get(p.job);
  if (job) job.pictures = [...(job.pictures ?? []).filter((other) => other.id !== p.id), p];
  const live = state.jobs.get(p.job);
  if (live) Object.assign(live, { pictures: [...(live.pictures ?? []).filter((other) => other.id !== p.id), p], preview: null, done: 0 });
  if (state.view.kind === 'job' && state.view.id === p.job) draw();
}

// A swipe goes to the next picture, unless it begins at the edge of the screen, which browsers use themselves.
function startSwipes() {
  let from = null;
  $('mat').addEventListener('pointerdown', (event) => {
    const edge = event.clientX < 28 || event.clientX > window.innerWidth - 28;
    from = event.pointerType === 'touch' && !edge && shownPicture() ? { x: event.clientX, y: event.clientY } : null;
  });
  $('mat').addEventListener('pointerup', (event) => {
    const x = from ? event.clientX - from.x : 0, y = from ? event.clientY - from.y : 0;
    from = null;
    if (Math.abs(x) > 50 && Math.abs(x) > 2 * Math.abs(y)) go(x < 0 ? 1 : -1);
  });
  $('mat').addEventListener('pointercancel', () => { from = null; });
}

export function startViewer() {
  on('view', async (view) => {
    if (view.kind === 'picture' && !picture(view.id) && guest?.id !== view.id)
      try { guest = await find(view.id); } catch { view = { kind: 'empty' }; }
    state.view = view;
    draw();
  });
  on('job', onJob);
  on('about', () => { const job = state.jobs.get(state.view.id); if (job) drawProgress(job); });
  on('progress', (job) => { if (state.view.id === job.id) drawProgress(job); });
  on('preview', onPreview);
  on('picture', onPicture);
  $('before').addEventListener('click', () => go(-1));
  $('after').addEventListener('click', () => go(1));
  startSwipes();
  draw();
}
