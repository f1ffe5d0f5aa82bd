// compare.js: two pictures in one place: a slider, side by side, or flicker.
import { $, el, on, toast, shortText } from './dom.js';
import { fileUrl } from './api.js';
import { picture } from './state.js';
import { shownPicture } from './viewer.js';
import { neighbour } from './gallery.js';

let pair = null; // [the picture on the stage, the other], ids
let mode = 'slider', timer = 0;
const MODES = [['slider', 'Slider'], ['side', 'Side by side'], ['flicker', 'Flicker']];

export const comparing = () => !!pair;

export function closeCompare() {
  clearInterval(timer);
  if (!pair) return;
  pair = null;
  $('compare').hidden = true;
  document.body.classList.remove('comparing');
  $('do-compare').setAttribute('aria-pressed', 'false');
}

const url = (name) => (name.startsWith('picture:') ? fileUrl(name.slice(8)) : name);

function drawPair() {
  const [one, other] = pair, box = $('compare');
  clearInterval(timer);
  const images = [one, other].map(({ src, alt }) => el('img', { src, alt, draggable: false }));
  const view = el('div', { class: `pair ${mode}` }, ...images);
  view.style.setProperty('--ratio', one.ratio);
  const chooser = el('div', { class: 'row', role: 'group', 'aria-label': 'How to compare' }, ...MODES.map(([name, label]) =>
    el('button', { type: 'button', class: 'quiet', text: label, 'aria-pressed': String(name === mode), onclick: () => { mode = name; drawPair(); } })),
  el('button', { type: 'button', class: 'quiet', text: 'Done', onclick: closeCompare }));
  if (mode === 'slider') {
    const range = el('input', { type: 'range', min: 0, max: 100, value: 50, 'aria-label': 'How much of the first picture is shown' });
    const set = () => view.style.setProperty('--at', range.value + '%');
    range.addEventListener('input', set);
    view.append(el('i', { class: 'edge' }), range);
    set();
  }
  if (mode === 'flicker') {
    let first = true;
    const flip = () => { first = !first; images[1].classList.toggle('under', first); };
    flip();
    if (!window.matchMedia('(prefers-reduced-motion: reduce)').matches) timer = setInterval(flip, 700);
    view.append(el('button', { type: 'button', class: 'quiet flip', text: 'Change', onclick: flip }));
  }
  box.replaceChildren(view, chooser);
}

// Compares the picture on the stage with its start image, or with the next older one. Another picture is chosen by a click in the
// gallery: with Shift, or while two are compared.
export function compare(otherId) {
  if (pair && !otherId) return closeCompare();
  const p = shownPicture();
  if (!p) return;
  const older = neighbour(1) ?? neighbour(-1), reference = p.settings?.images?.find((name) => name.startsWith('picture:'));
  const other = otherId ? picture(otherId) : null;
  const name = other ? 'picture:' + other.id : reference ?? (older ? 'picture:' + older.id : null);
  if (!name || name === 'picture:' + p.id) return toast('There is no other picture yet.');
  const otherPicture = picture(name.slice(8));
  pair = [{ src: fileUrl(p.id), alt: p.settings?.prompt ?? '', ratio: p.width / p.height }, { src: url(name), alt: shortText(otherPicture?.settings?.prompt ?? 'the image it started from', 100) }];
  $('compare').hidden = false;
  document.body.classList.add('comparing');
  $('do-compare').setAttribute('aria-pressed', 'true');
  drawPair();
  $('compare').querySelector('input, button').focus();
  if (!otherId) toast('Choose a picture of the gallery to compare with that one.', [], 4);
}

export function startCompare() {
  $('do-compare').setAttribute('aria-pressed', 'false');
  $('do-compare').addEventListener('click', () => compare());
  on('compare-with', ({ id }) => compare(id));
  on('view', closeCompare);
}
