// gallery.js: all pictures by day, with search, pins, and deleting that can be undone.
import { $, el, emit, on, say, toast, icon, later, shortText } from './dom.js';
import { call, thumbUrl } from './api.js';
import { state, picture } from './state.js';

const UNDO = 10; // seconds
let more = false, loading = null, query = '', pinned = false, rating = 0;
const leaving = new Map(); // pictures that are deleted when their time is over, by id

// ---- loading ----

function path(before) {
  const words = new URLSearchParams({ limit: '60' });
  if (before) words.set('before', before);
  if (query) words.set('q', query);
  if (pinned) words.set('pinned', 'true');
  if (rating) words.set('rating', rating);
  return '/pictures?' + words;
}

function reload() {
  loading = null;
  return load(true);
}

function load(fresh) {
  if (loading) return loading;
  const mine = (loading = (async () => {
    try {
      const found = [];
      let answer = null, before = fresh ? '' : state.pictures.at(-1)?.id;
      do { // a server of a fleet answers a long search in pieces
        answer = await call('GET', path(before));
        if (loading !== mine && loading) return;
        found.push(...answer.pictures);
        before = answer.next;
      } while (before && found.length < 60);
      if (fresh) state.pictures.length = 0;
      state.pictures.push(...found.filter((p) => !leaving.has(p.id)));
      more = answer.more;
      draw();
    } catch (problem) {
      if (problem.status) emit('problem', problem);
    } finally {
      if (loading === mine) loading = null;
    }
  })());
  return mine;
}

// ---- drawing ----

function dayOf(seconds) {
  const day = new Date(seconds * 1000), now = new Date(), midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate());
  const days = Math.ceil((midnight - day) / 86400000);
  if (days <= 0) return 'Today';
  if (days === 1) return 'Yesterday';
  return day.toLocaleDateString(undefined, { weekday: 'long', day: 'numeric', month: 'long', ...(day.getFullYear() === now.getFullYear() ? {} : { year: 'numeric' }) });
}

const nodes = new Map(); // the buttons, by the ids of their pictures

function thumb(p) {
  const prompt = p.settings?.prompt ?? 'a picture', name = `${p.id} ${p.pinned} ${p.rating}`, old = nodes.get(name);
  if (old) return old;
  const button = el('button', {
    type: 'button', class: 'thumb', 'data-id': p.id, title: shortText(prompt, 120), tabIndex: -1, draggable: true,
    'aria-label': `${shortText(prompt, 120)}${p.pinned ? ', pinned' : ''}${p.rating ? `, ${p.rating} of 5 stars` : ''}`,
    onclick: (event) => emit(event.shiftKey || document.body.classList.contains('comparing') ? 'compare-with' : 'view', { kind: 'picture', id: p.id }),
    ondragstart: (event) => { event.dataTransfer.setData('text/lazuli-picture', p.id); event.dataTransfer.effectAllowed = 'copy'; },
  }, el('img', { src: thumbUrl(p.id), alt: '', loading: 'lazy', decoding: 'async', draggable: false }));
  if (p.pinned) button.append(icon('pin'));
  if (p.rating) button.append(el('span', { class: 'rated', text: '★'.repeat(p.rating) }));
  nodes.set(name, button);
  return button;
}

// Marks the picture on the stage. One button is in the order of the tab key; arrows go on from there.
function mark(focused) {
  const shown = state.view.kind === 'picture' ? thumbOf(state.view.id) : null;
  for (const old of $('days').querySelectorAll('[aria-current], [tabindex="0"]')) {
    old.removeAttribute('aria-current');
    old.tabIndex = -1;
  }
  shown?.setAttribute('aria-current', 'true');
  const first = thumbOf(focused) ?? shown ?? $('days').querySelector('.thumb');
  if (first) first.tabIndex = 0;
  if (focused && document.activeElement !== first) thumbOf(focused)?.focus();
}

function draw() {
  const focused = document.activeElement?.closest('.thumb')?.dataset.id, days = new Map();
  for (const p of state.pictures) {
    const name = dayOf(p.created);
    if (!days.has(name)) days.set(name, []);
    days.get(name).push(p);
  }
  $('days').replaceChildren(...[...days].map(([name, list]) =>
    el('section', { class: 'day' }, el('h3', { text: name }), el('div', { class: 'thumbs' }, ...list.map(thumb)))));
  mark(focused);
  $('no-pictures').hidden = state.pictures.length > 0;
  $('no-pictures').textContent = query ? `No prompt contains “${query}”.` : pinned ? 'No picture is pinned.' : rating ? 'No picture has that many stars.' : 'Your pictures will be here.';
}

const thumbOf = (id) => (id ? $('days').querySelector(`[data-id="${CSS.escape(id)}"]`) : null);

// Arrow keys between thumbs, by their places on the screen.
function walk(event) {
  const all = [...$('days').querySelectorAll('.thumb')], at = all.indexOf(document.activeElement);
  if (at < 0) return;
  const columns = Math.max(1, all.filter((t) => t.offsetTop === all[at].offsetTop && t.parentElement === all[at].parentElement).length);
  const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -at, End: all.length - 1 - at }[event.key];
  if (by === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  const next = all[Math.min(all.length - 1, Math.max(0, at + by))];
  all[at].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  if (all.indexOf(next) > all.length - 8 && more) load(false);
}

// ---- what changes ----

// A new picture of a job.
function arrived({ id, picture: made }) {
  const job = state.jobs.get(id);
  const p = { ...made, settings: { ...(job?.settings ?? {}), seed: made.seed } };
  if (!state.pictures.some((other) => other.id === p.id)) {
    const fits = (!query || (p.settings.prompt ?? '').toLowerCase().includes(query.toLowerCase())) && !pinned && !rating;
    if (fits) state.pictures.unshift(p);
  }
  draw();
  say('A picture is done.');
  emit('picture', p);
}

async function change(p, body, said) {
  try {
    const now = await call('PUT', `/pictures/${p.id}`, { body });
    Object.assign(p, { pinned: now.pinned, rating: now.rating });
    say(said);
    draw();
    emit('view', state.view);
  } catch (problem) {
    emit('problem', problem);
  }
}

export const pin = (p) => change(p, { pinned: !p.pinned }, p.pinned ? 'Not pinned any more' : 'Pinned');
// stars: 1 to 5; 0: none.
export const rate = (p, stars) => change(p, { rating: stars }, stars ? `${stars} of 5 stars` : 'No rating');

function sendDelete(id, keepalive = false) {
  clearTimeout(leaving.get(id)?.timer);
  leaving.delete(id);
  return call('DELETE', `/pictures/${id}`, { keepalive }).catch((problem) => { if (problem.status !== 410) emit('problem', problem); });
}

// The picture leaves the gallery now and the server in ten seconds, or when the window is closed.
export function remove(p) {
  const at = state.pictures.indexOf(p);
  if (at < 0) return;
  state.pictures.splice(at, 1);
  const next = state.pictures[Math.min(at, state.pictures.length - 1)];
  leaving.set(p.id, { p, at, timer: setTimeout(() => sendDelete(p.id), UNDO * 1000) });
  draw();
  emit('view', next ? { kind: 'picture', id: next.id } : { kind: 'empty' });
  const focus = document.activeElement === document.body ? thumbOf(next?.id) : null;
  focus?.focus();
  const close = toast('The picture was deleted.', [['Undo', () => restore(p.id)]], UNDO);
  leaving.get(p.id).close = close;
}

export function restore(id = [...leaving.keys()].pop()) {
  const found = leaving.get(id);
  if (!found) return;
  clearTimeout(found.timer);
  found.close();
  leaving.delete(id);
  state.pictures.splice(Math.min(found.at, state.pictures.length), 0, found.p);
  draw();
  emit('view', { kind: 'picture', id });
  say('The picture is back.');
}

// The neighbour of the picture that is shown: by 1 is older, -1 is newer.
export function neighbour(by) {
  const at = state.pictures.findIndex((p) => p.id === state.view.id);
  if (at + by > state.pictures.length - 8 && more) load(false);
  return at < 0 ? state.pictures[0] : state.pictures[at + by];
}

export async function find(id) {
  return picture(id) ?? (await call('GET', `/pictures/${id}`));
}

export function startGallery() {
  on('server:picture', arrived);
  on('server:removed', ({ picture: id }) => {
    const at = state.pictures.findIndex((p) => p.id === id);
    if (at < 0) return;
    state.pictures.splice(at, 1);
    draw();
    if (state.view.id === id) emit('view', { kind: 'empty' });
  });
  on('viewed', () => mark(document.activeElement?.closest('.thumb')?.dataset.id));
  $('days').addEventListener('keydown', walk);
  $('search').addEventListener('input', later(() => { query = $('search').value.trim(); reload().then(() => say(`${state.pictures.length}${more ? ' or more' : ''} pictures`)); }, 250));
  $('only-pinned').addEventListener('click', () => {
    pinned = !pinned;
    $('only-pinned').setAttribute('aria-pressed', String(pinned));
    reload();
  });
  $('rated').addEventListener('change', () => { rating = Number($('rated').value); reload().then(() => say(`${state.pictures.length}${more ? ' or more' : ''} pictures`)); });
  new IntersectionObserver((entries) => { if (entries.some((e) => e.isIntersecting) && more) load(false); }, { rootMargin: '400px' }).observe($('more-pictures'));
  window.addEventListener('pagehide', () => { for (const id of [...leaving.keys()]) sendDelete(id, true); });
  on('connected', () => reload());
}
