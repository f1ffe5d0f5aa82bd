// keys.js: the keyboard, and the help that lists it.
import { $, el, keep, recall } from './dom.js';
import { state, running } from './state.js';
import { make, cancel } from './queue.js';
import { pin, rate, remove, restore } from './gallery.js';
import { shownPicture, go } from './viewer.js';
import { use, fourMore, save, toggleDetails } from './details.js';
import { compare, comparing, closeCompare } from './compare.js';
import { painting, openMask, closeMask, finishMask, setEraser, setBrush, undo, zoom } from './mask.js';

const withPicture = (f) => () => { const p = shownPicture(); if (p) f(p); };

// [key, what it does, function, where: '' everywhere, 'mask' while a mask is painted]
const KEYS = [
  ['/', 'go to the prompt', () => { $('prompt').focus(); $('prompt').select(); }],
  ['ArrowLeft', 'newer picture', () => go(-1)],
  ['ArrowRight', 'older picture', () => go(1)],
  ['a', 'use all settings of the picture', () => use('all')],
  ['s', 'use its seed', () => use('seed')],
  ['v', 'four more like it', fourMore],
  ['i', 'details', toggleDetails],
  ['c', 'compare', () => compare()],
  ['p', 'pin', withPicture(pin)],
  ...[1, 2, 3, 4, 5].map((n) => [String(n), `${n} star${n > 1 ? 's' : ''}`, withPicture((p) => rate(p, n))]),
  ['0', 'no stars', withPicture((p) => rate(p, 0))],
  ['d', 'download', () => save('original')],
  ['Delete', 'delete', withPicture(remove)],
  ['z', 'undo deleting', () => restore()],
  ['m', 'repaint a part', openMask],
  ['?', 'this help', () => $('help').showModal()],
  ['b', 'brush', () => setEraser(false), 'mask'],
  ['e', 'eraser', () => setEraser(true), 'mask'],
  ['[', 'smaller brush', () => setBrush(1 / 1.25), 'mask'],
  [']', 'larger brush', () => setBrush(1.25), 'mask'],
  ['+', 'closer', () => zoom(1.5), 'mask'],
  ['-', 'farther', () => zoom(1 / 1.5), 'mask'],
  ['Enter', 'use the mask', finishMask, 'mask'],
];
const NAMES = { ArrowLeft: '←', ArrowRight: '→', Delete: 'Del' };
let single = recall('single-keys', true);

const isText = (node) => !!node?.closest?.('textarea, select, input:not([type=radio]):not([type=range]):not([type=checkbox]), [contenteditable]');
// Arrows belong to these.
const usesArrows = (node) => !!node?.closest?.('input, [role=menu], .thumb, canvas');

function escape(event) {
  if (document.querySelector('[popover]:popover-open')) return; // the browser closes it
  if (painting()) closeMask();
  else if (comparing()) closeCompare();
  else if ($('details').open) $('details').close();
  else if (isText(event.target) && event.target.id !== 'prompt') event.target.blur();
  else {
    const job = state.jobs.get(state.view.id) ?? running();
    if (job && job.status === 'in_progress') cancel(job.id);
    else return;
  }
  event.preventDefault();
}

function press(event) {
  if (document.querySelector('dialog:modal')) return;
  if ((event.ctrlKey || event.metaKey) && event.key === 'Enter') {
    event.preventDefault();
    return make();
  }
  if ((event.ctrlKey || event.metaKey) && event.key === 'z' && !isText(event.target)) {
    event.preventDefault();
    return painting() ? undo() : restore();
  }
  if (event.key === 'Escape') return escape(event);
  if (event.ctrlKey || event.metaKey || event.altKey || isText(event.target)) return;
  if (event.key.startsWith('Arrow') && usesArrows(event.target)) return;
  if (event.key === 'Enter' && event.target.closest('button, a, input')) return;
  if (!single && event.key.length === 1) return;
  const where = painting() ? 'mask' : '';
  const found = KEYS.find(([key, , , place = '']) => key === event.key && place === where) ?? KEYS.find(([key, , , place]) => key === event.key && event.key === '?' && !place);
  if (!found) return;
  event.preventDefault();
  found[2]();
}

export function startKeys() {
  document.addEventListener('keydown', press);
  $('help-open').addEventListener('click', () => $('help').showModal());
  const rows = [['Ctrl', 'Enter', 'make the picture'], ['Esc', '', 'cancel the picture, or close what is open']].map(([a, b, text]) =>
    [el('dt', {}, el('kbd', { text: a }), b ? ' ' : '', b ? el('kbd', { text: b }) : ''), el('dd', { text })]);
  const table = KEYS.map(([key, text, , place]) => [el('dt', {}, el('kbd', { text: NAMES[key] ?? key })), el('dd', { text: place ? `${text} (mask)` : text })]);
  $('help-keys').append(...[...rows, ...table].map((pair) => el('div', {}, ...pair)));
  $('single-keys').checked = single;
  $('single-keys').addEventListener('change', () => { single = $('single-keys').checked; keep('single-keys', single); });
}
