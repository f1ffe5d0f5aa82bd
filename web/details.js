// details.js: what is known of the picture on the stage, using its settings again, and taking it away.
import { $, el, emit, on, copy, toast, icon } from './dom.js';
import { fileUrl, saveBlob } from './api.js';
import { state, modelOf } from './state.js';
import { shownPicture } from './viewer.js';
import { useSettings } from './settings.js';
import { make } from './queue.js';
import { pin, rate, remove } from './gallery.js';
import { addPicture } from './images.js';
import { textsOf, withTexts } from './texts.js';

// ---- the panel ----

const phone = () => window.matchMedia('(max-width: 760px)').matches;

function rows(p) {
  const s = p.settings ?? {}, m = modelOf(s.model), took = p.milliseconds ? Object.values(p.milliseconds).reduce((a, b) => a + b, 0) / 1000 : 0;
  return [
    ['Size', `${p.width} × ${p.height}`, 'size'], ['Seed', String(p.seed), 'seed'], ['Model', s.model], ['Steps', s.steps ?? m?.steps],
    ['Guidance', s.guidance], ['Sampler', s.sampler], ['Schedule', s.schedule], ['Not shown', s.negative],
    ['Change', s.strength === undefined ? undefined : `${Math.round(s.strength * 100)} %`],
    ['Images', s.images?.length ? `${s.images.length}${s.mask ? ', with a mask' : ''}` : undefined],
    ['Took', took ? `${took.toFixed(took < 10 ? 1 : 0)} s` : undefined], ['Made', new Date(p.created * 1000).toLocaleString()],
    ['File', `${p.format.toUpperCase()}, ${Math.round(p.bytes / 1024)} KB`],
  ].filter(([, value]) => value !== undefined && value !== '');
}

function useButton(which, label) {
  return el('button', { type: 'button', class: 'quiet use', text: 'Use', 'aria-label': label, onclick: () => use(which) });
}

// Five stars; the one that is pressed again takes the rating away.
function stars(p) {
  const box = el('div', { class: 'stars', role: 'group', 'aria-label': 'Rating' });
  for (let n = 1; n <= 5; n++) {
    const pressed = n === p.rating;
    box.append(el('button', { type: 'button', class: n <= p.rating ? 'icon lit' : 'icon', 'aria-pressed': String(pressed), 'aria-label': `${n} star${n > 1 ? 's' : ''}`, title: `${n} (${n})`, onclick: () => rate(p, pressed ? 0 : n) }, icon('star')));
  }
  return box;
}

function draw() {
  const p = shownPicture(), at = [...$('details-body').querySelectorAll('.stars button')].indexOf(document.activeElement);
  if (!p) return close();
  const list = el('dl', {});
  for (const [name, value, which] of rows(p))
    list.append(el('dt', { text: name }), el('dd', {}, el('span', { text: value }), which ? useButton(which, `Use this ${which}`) : null));
  $('details-body').replaceChildren(
    el('p', { class: 'prompt', text: p.settings?.prompt ?? '' }),
    stars(p),
    el('div', { class: 'row' }, el('button', { type: 'button', class: 'quiet', text: 'Use prompt', 'aria-label': 'Use this prompt', onclick: () => use('prompt') }),
      el('button', { type: 'button', class: 'quiet', text: 'Use everything', onclick: () => use('all') }),
      el('button', { type: 'button', class: 'quiet', text: 'Copy as a command', onclick: () => copy(commandLine(p), 'The command was') })),
    list);
  if (at >= 0) $('details-body').querySelectorAll('.stars button')[at].focus();
}

function close() {
  if ($('details').open) $('details').close();
}

export function toggleDetails() {
  if ($('details').open) return close();
  if (!shownPicture()) return;
  draw();
  if (phone()) $('details').showModal();
  else $('details').show();
  $('do-info').setAttribute('aria-pressed', 'true');
  $('details').querySelector('[data-close]').focus();
}

// ---- using it again ----

const USED = { all: 'All settings are', prompt: 'The prompt is', seed: 'The seed is', size: 'The size is' };

export function use(which) {
  const p = shownPicture();
  if (!p) return;
  if (which === 'image') return addPicture(p);
  useSettings({ ...p.settings, seed: p.seed, width: p.width, height: p.height }, which);
  if ($('details').open && phone()) close();
  toast(`${USED[which]} in the form.`, [], 3);
}

const SETTINGS = ['prompt', 'negative', 'model', 'steps', 'guidance', 'sampler', 'schedule', 'shift', 'strength', 'images', 'mask', 'format'];

// Four more pictures with the next seeds.
export function fourMore() {
  const p = shownPicture();
  if (!p) return;
  const fields = Object.fromEntries(SETTINGS.map((name) => [name, p.settings?.[name]]));
  const seeds = [1, 2, 3, 4].map((i) => p.seed + i);
  if (seeds.some((i) => !Number.isSafeInteger(i))) return toast('The seed is too large for this.');
  const size = fields.mask ? { width: undefined, height: undefined } : { width: p.width, height: p.height };
  make({ ...fields, ...size, seed: seeds, count: undefined });
}

// ---- taking it away ----

const quote = (text) => (/^[\w./:=+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

// The command that makes the same picture. Images have the names that the visitor may give them.
export function commandLine(p) {
  const s = p.settings ?? {}, words = ['lazuli', quote(s.prompt ?? '')];
  if (s.model && s.model !== 'demo') words.push('-m', quote(s.model));
  words.push('-W', p.width, '-H', p.height, '-S', p.seed);
  const options = [['-s', s.steps], ['-g', s.guidance], ['--sampler', s.sampler], ['--schedule', s.schedule], ['--shift', s.shift], ['--negative', s.negative], ['--strength', s.strength]];
  for (const [name, value] of options) if (value !== undefined && value !== '') words.push(name, quote(String(value)));
  (s.images ?? []).forEach((name, i) => words.push('-i', `image-${i + 1}.png`));
  if (s.mask) words.push('--mask', 'mask.png');
  if (/[{}]|__/.test(s.prompt ?? '')) words.push('--no-templates');
  return [...words, '-o', `lazuli-${p.seed}.png`].join(' ');
}

async function canvasOf(file) {
  const image = await createImageBitmap(file);
  const canvas = el('canvas', { width: image.width, height: image.height });
  canvas.getContext('2d').drawImage(image, 0, 0);
  return canvas;
}

async function fileOf(p) {
  const answer = await fetch(fileUrl(p.id));
  if (!answer.ok) throw new Error();
  return answer.blob();
}

// how: original, command, or a format, with or without the settings. A canvas keeps the pixels and drops the texts.
export async function save(how, bare = false) {
  const p = shownPicture();
  if (!p) return;
  if (how === 'command') return copy(commandLine(p), 'The command was');
  const ending = { png: 'png', jpeg: 'jpg', webp: 'webp' };
  try {
    const file = await fileOf(p);
    if (how === 'original') return saveBlob(file, `lazuli-${p.seed}.${ending[p.format]}`);
    const canvas = await canvasOf(file), blob = await new Promise((resolve) => canvas.toBlob(resolve, `image/${how}`, 0.95));
    if (blob?.type !== `image/${how}`) return toast(`This browser cannot write ${how.toUpperCase()} files.`);
    saveBlob(bare ? blob : await withTexts(blob, await textsOf(file), canvas.width, canvas.height), `lazuli-${p.seed}.${ending[how]}`);
  } catch {
    emit('problem', new Error('The picture could not be downloaded; the server may have removed it.'));
  }
}

// ---- menus ----

function openMenu(button, menu) {
  const place = button.getBoundingClientRect();
  menu.showPopover();
  const box = menu.getBoundingClientRect();
  menu.style.left = Math.max(8, Math.min(place.left, window.innerWidth - box.width - 8)) + 'px';
  menu.style.top = Math.max(8, place.top - box.height - 6) + 'px';
  button.setAttribute('aria-expanded', 'true');
  menu.querySelector('[role=menuitem]').focus();
}

function startMenu(button, menu, act) {
  button.addEventListener('click', () => openMenu(button, menu));
  menu.addEventListener('toggle', (event) => { if (event.newState === 'closed') button.setAttribute('aria-expanded', 'false'); });
  menu.addEventListener('click', (event) => {
    const item = event.target.closest('[role=menuitem]');
    if (!item) return;
    menu.hidePopover();
    button.focus();
    act(item.dataset);
  });
  menu.addEventListener('keydown', (event) => {
    const items = [...menu.querySelectorAll('[role=menuitem]')], at = items.indexOf(document.activeElement);
    const to = { ArrowDown: (at + 1) % items.length, ArrowUp: (at + items.length - 1) % items.length, Home: 0, End: items.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    items[to].focus();
  });
}

export function startDetails() {
  startMenu($('do-reuse'), $('reuse-menu'), (data) => use(data.use));
  startMenu($('do-save'), $('save-menu'), (data) => save(data.save, data.bare !== undefined));
  const withPicture = (f) => () => { const p = shownPicture(); if (p) f(p); };
  $('do-pin').addEventListener('click', withPicture(pin));
  $('do-delete').addEventListener('click', withPicture(remove));
  $('do-four').addEventListener('click', fourMore);
  $('do-info').addEventListener('click', toggleDetails);
  $('details').addEventListener('close', () => { $('do-info').setAttribute('aria-pressed', 'false'); if (!$('bar').hidden) $('do-info').focus(); });
  on('add-picture', (id) => { const p = state.pictures.find((other) => other.id === id); if (p) addPicture(p); });
  on('viewed', () => { if ($('details').open) draw(); });
}
