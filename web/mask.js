// mask.js: painting on a picture what should be made anew. The canvas is as large as the picture; its paint becomes the
// transparent part of a PNG, which is what the server repaints.
import { $, el, emit, toast, iconButton } from './dom.js';
import { call, fileUrl } from './api.js';
import { state, canMask } from './state.js';
import { shownPicture } from './viewer.js';
import { setMask } from './images.js';
import { settings, show } from './settings.js';

const COLOUR = '#2f6fed', UNDOS = 20;
let at = null; // the picture that is painted on, and everything of it; null: closed

export const painting = () => !!at;

export function closeMask() {
  if (!at) return;
  at = null;
  $('painter').hidden = true;
  $('painter').replaceChildren();
  document.body.classList.remove('painting');
  if (!$('bar').hidden) $('do-mask').focus();
}

// ---- strokes ----

function remember() {
  at.undos.push(at.context.getImageData(0, 0, at.canvas.width, at.canvas.height));
  if (at.undos.length > UNDOS) at.undos.shift();
}

export function undo() {
  const before = at?.undos.pop();
  if (before) at.context.putImageData(before, 0, 0);
}

// The points of several events are drawn together, once for each frame of the screen.
function strokeTo(points) {
  const c = at.context;
  c.globalCompositeOperation = at.eraser ? 'destination-out' : 'source-over';
  c.strokeStyle = c.fillStyle = COLOUR;
  c.lineCap = c.lineJoin = 'round';
  for (const [x, y, pressure] of points) {
    c.lineWidth = at.size * pressure;
    c.beginPath();
    c.moveTo(...(at.last ?? [x, y]));
    c.lineTo(x + 0.01, y); // a line without length would paint nothing
    c.stroke();
    at.last = [x, y];
  }
}

function flush() {
  if (!at) return;
  at.frame = 0;
  strokeTo(at.points.splice(0));
}

function point(event) {
  const box = at.canvas.getBoundingClientRect(), pressure = event.pointerType === 'pen' && event.pressure ? 0.3 + event.pressure : 1;
  return [((event.clientX - box.left) / box.width) * at.canvas.width, ((event.clientY - box.top) / box.height) * at.canvas.height, pressure];
}

function down(event) {
  if (event.button !== 0) return;
  event.preventDefault();
  at.canvas.setPointerCapture(event.pointerId);
  if (at.panning || event.shiftKey) {
    at.pan = { x: event.clientX, y: event.clientY, left: at.view.scrollLeft, top: at.view.scrollTop };
    return;
  }
  remember();
  at.last = null;
  at.drawing = true;
  at.points.push(point(event));
  at.frame ||= requestAnimationFrame(flush);
}

function move(event) {
  if (at.pan) {
    at.view.scrollLeft = at.pan.left - (event.clientX - at.pan.x);
    at.view.scrollTop = at.pan.top - (event.clientY - at.pan.y);
    return;
  }
  showMark(point(event));
  if (!at.drawing) return;
  const all = event.getCoalescedEvents?.() ?? [];
  for (const one of all.length ? all : [event]) at.points.push(point(one));
  at.frame ||= requestAnimationFrame(flush);
}

function up() {
  if (!at) return;
  at.drawing = false;
  at.pan = null;
}

// A keyboard paints too: arrows move a cross, Space paints at it.
function typed(event) {
  const step = event.shiftKey ? 1 : Math.max(4, at.size / 4), cross = at.cross;
  const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!by && event.key !== ' ') return;
  event.preventDefault();
  event.stopPropagation();
  if (by) {
    cross[0] = Math.min(at.canvas.width, Math.max(0, cross[0] + by[0] * step));
    cross[1] = Math.min(at.canvas.height, Math.max(0, cross[1] + by[1] * step));
  } else {
    remember();
    at.last = null;
    strokeTo([[...cross, 1]]);
  }
  showMark(cross);
}

// A circle as large as the brush.
function showMark([x, y]) {
  at.mark.style.left = `${(100 * x) / at.canvas.width}%`;
  at.mark.style.top = `${(100 * y) / at.canvas.height}%`;
  at.mark.style.width = `${(100 * at.size) / at.canvas.width}%`;
  at.mark.hidden = false;
}

// ---- the tools ----

export function setEraser(eraser) {
  if (!at) return;
  at.eraser = eraser;
  at.buttons.brush.setAttribute('aria-pressed', String(!eraser));
  at.buttons.eraser.setAttribute('aria-pressed', String(eraser));
}

export function setBrush(factor) {
  if (!at) return;
  at.size = Math.min(Math.max(at.size * factor, 4), Math.max(at.canvas.width, at.canvas.height));
  at.range.value = at.size;
  at.mark.style.width = `${(100 * at.size) / at.canvas.width}%`;
}

export function zoom(factor) {
  if (!at) return;
  at.zoom = Math.min(8, Math.max(1, at.zoom * factor));
  at.sheet.style.setProperty('--zoom', at.zoom);
}

function invert() {
  remember();
  const c = at.context;
  c.globalCompositeOperation = 'xor';
  c.fillStyle = COLOUR;
  c.fillRect(0, 0, at.canvas.width, at.canvas.height);
}

function clear() {
  remember();
  at.context.clearRect(0, 0, at.canvas.width, at.canvas.height);
}

// ---- the mask ----

// Opaque white, with the paint cut out.
async function maskFile() {
  const { width, height } = at.canvas, out = el('canvas', { width, height }), c = out.getContext('2d');
  c.fillStyle = '#fff';
  c.fillRect(0, 0, width, height);
  c.globalCompositeOperation = 'destination-out';
  for (let i = 0; i < 3; i++) c.drawImage(at.canvas, 0, 0); // soft edges of the brush become hard
  return new Promise((resolve) => out.toBlob(resolve, 'image/png'));
}

const isEmpty = () => !at.context.getImageData(0, 0, at.canvas.width, at.canvas.height).data.some((value, i) => i % 4 === 3 && value > 127);

export async function finishMask() {
  if (!at) return;
  if (isEmpty()) return toast('Paint over what should change first.');
  const p = at.picture, shown = await new Promise((resolve) => at.canvas.toBlob(resolve, 'image/png'));
  try {
    const answer = await call('POST', '/uploads', { body: await maskFile() });
    closeMask();
    setMask(p, { name: 'upload:' + answer.id, url: URL.createObjectURL(shown) });
    toast('Now write what the painted part should show, and press Make.', [], 6);
    $('prompt').focus();
    $('prompt').select();
  } catch (problem) {
    emit('problem', problem);
  }
}

export function openMask() {
  const p = shownPicture();
  if (at || !p) return;
  const able = state.about.models.find((m) => m.id === settings.model && canMask(m)) ?? state.about.models.find(canMask);
  if (!able) return toast('This model cannot repaint a part of a picture.');
  if (settings.model && able.id !== settings.model) { settings.model = able.id; show(); }
  const canvas = el('canvas', { width: p.width, height: p.height, tabIndex: 0, 'aria-label': 'Paint over what should change; arrow keys move, Space paints', role: 'img' });
  const mark = el('i', { class: 'mark', hidden: true });
  const sheet = el('div', { class: 'sheet-picture' }, el('img', { src: fileUrl(p.id), alt: p.settings?.prompt ?? '', draggable: false }), canvas, mark);
  const view = el('div', { class: 'paint-view' }, sheet), size = Math.max(p.width, p.height) / 8;
  const button = (label, onclick, title) => el('button', { type: 'button', class: 'quiet', text: label, title, onclick });
  const range = el('input', { type: 'range', min: 4, max: Math.max(p.width, p.height) / 2, value: size, 'aria-label': 'Size of the brush', title: 'Size of the brush ([ and ])' });
  const buttons = { brush: button('Brush', () => setEraser(false), 'Brush (b)'), eraser: button('Eraser', () => setEraser(true), 'Eraser (e)') };
  const hand = button('Hand', () => { at.panning = !at.panning; hand.setAttribute('aria-pressed', String(at.panning)); }, 'Move the picture (hold Shift)');
  hand.setAttribute('aria-pressed', 'false');
  const tools = el('div', { class: 'row', role: 'toolbar', 'aria-label': 'Mask' }, buttons.brush, buttons.eraser, range, button('Undo', undo, 'Undo (Ctrl+Z)'), button('Invert', invert), button('Clear', clear),
    iconButton('search', 'Larger', () => zoom(at.zoom >= 4 ? 0.01 : 2), 'Larger, and back (+)'), hand, button('Leave', closeMask, 'Leave without a mask (Esc)'), el('button', { type: 'button', class: 'make', text: 'Done', onclick: finishMask }));
  sheet.style.setProperty('--ratio', p.width / p.height);
  at = { picture: p, canvas, context: canvas.getContext('2d', { willReadFrequently: true }), view, sheet, mark, range, buttons, size, zoom: 1, undos: [], points: [], cross: [p.width / 2, p.height / 2] };
  range.addEventListener('input', () => { at.size = Number(range.value); });
  canvas.addEventListener('pointerdown', down);
  canvas.addEventListener('pointermove', move);
  for (const end of ['pointerup', 'pointercancel']) canvas.addEventListener(end, up);
  canvas.addEventListener('pointerleave', () => { mark.hidden = true; });
  canvas.addEventListener('keydown', typed);
  $('painter').replaceChildren(view, tools);
  $('painter').hidden = false;
  document.body.classList.add('painting');
  setEraser(false);
  canvas.focus();
}

export function startMask() {
  $('do-mask').addEventListener('click', openMask);
}
