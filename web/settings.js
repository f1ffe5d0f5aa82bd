// settings.js: the form: what is asked of the model, kept for the next visit, and what it will cost.
import { $, el, emit, on, keep, recall, later, secondsText, bytesText, megapixels } from './dom.js';
import { call } from './api.js';
import { state, models, modelOf, canGuide } from './state.js';
import { imageFields, hasStart, useImages } from './images.js';

const SHAPES = [['1:1', 1, 1], ['3:2', 3, 2], ['2:3', 2, 3], ['16:9', 16, 9], ['9:16', 9, 16], ['own', 0, 0]];
const FRESH = { model: '', shape: '1:1', scale: '1', width: 0, height: 0, count: '1', seed: '', steps: '', guidance: '', sampler: '', schedule: '', strength: '', format: 'png', negative: '' };

// The values of the form, as texts. seed '': a new one for each picture.
export const settings = { prompt: '', ...FRESH };
let lastSeed = null; // of the newest picture, which a press on the seed fixes

export const chosenModel = () => modelOf(settings.model);

// ---- size ----

const round = (n, unit) => Math.max(unit, Math.round(n / unit) * unit);

const mostPixels = () => state.about?.limits.pixels ?? 4194304;

// The sizes of the model's training that the server makes.
const trainedSizes = (m, most) => (m?.sizes ?? []).filter(([w, h]) => w * h <= most);

// The size of the training that is nearest to a shape and a number of pixels; another shape is much worse than another number.
function nearest(sizes, ratio, pixels) {
  const times = (a, b) => Math.max(a / b, b / a), far = ([w, h]) => times(w / h, ratio) ** 6 * times(w * h, pixels);
  const [width, height] = sizes.reduce((best, s) => (far(s) <= far(best) ? s : best));
  return { width, height };
}

// The size with this shape and about so many pixels that the model was trained for, if it names sizes, and that the server makes.
function fitting(ratio, pixels) {
  const m = chosenModel(), unit = m?.token_pixels || 16, most = mostPixels(), sizes = trainedSizes(m, most);
  pixels = Math.min(pixels, most);
  if (sizes.length) return nearest(sizes, ratio, pixels);
  const wanted = { width: round(Math.sqrt(pixels * ratio), unit), height: round(Math.sqrt(pixels / ratio), unit) };
  while (wanted.width * wanted.height > most) wanted[wanted.width > wanted.height ? 'width' : 'height'] -= unit;
  return wanted;
}

// Width and height of the shape, with as many pixels as the model's own size times the scale.
export function size() {
  const m = chosenModel();
  if (settings.shape === 'own' && settings.width && settings.height)
    return { width: Number(settings.width), height: Number(settings.height) };
  const own = { width: m?.width || 1024, height: m?.height || 1024 };
  const [, a, b] = SHAPES.find(([name]) => name === settings.shape) ?? SHAPES[0];
  const pixels = own.width * own.height;
  if (settings.scale === '1' && (a === b || !a) && own.width === own.height && pixels <= mostPixels()) return own;
  return fitting(a ? a / b : own.width / own.height, pixels * Number(settings.scale));
}

export function setSize(width, height) {
  for (const [name] of SHAPES.filter(([, a]) => a)) {
    settings.shape = name;
    const now = size();
    if (now.width === width && now.height === height) return show();
  }
  Object.assign(settings, { shape: 'own', width: String(width), height: String(height) });
  show();
}

// The size with the shape of an image, and with as many pixels as the model's own.
export function fitShape(width, height) {
  const m = chosenModel(), fit = fitting(width / height, (m?.width || 1024) * (m?.height || 1024));
  settings.scale = '1';
  setSize(fit.width, fit.height);
}

// ---- the request ----

const number = (text) => (text === '' || text === null || Number.isNaN(Number(text)) ? undefined : Number(text));

// The fields of a job. more: fields that replace some of them.
export function jobFields(more = {}) {
  const m = chosenModel(), fields = { prompt: settings.prompt.trim(), model: m?.id, ...size(), preview: 'small', ...imageFields() };
  // The size of a picture that is changed is its own.
  if (fields.mask) { delete fields.width; delete fields.height; }
  const seed = number(settings.seed), count = Number(settings.count);
  if (seed !== undefined) fields.seed = seed;
  if (count > 1) fields.count = count;
  for (const name of ['steps', 'guidance', 'sampler', 'schedule', 'negative']) {
    if (settings[name] === '' || (!canGuide(m) && (name === 'guidance' || name === 'negative'))) continue;
    fields[name] = name === 'steps' || name === 'guidance' ? number(settings[name]) : settings[name];
  }
  if (hasStart()) fields.strength = number(settings.strength) ?? (fields.mask ? 1 : 0.7);
  if (settings.format !== 'png') fields.format = settings.format;
  return { ...fields, ...more };
}

// ---- what it costs ----

let planned = 0;

function tellCost(plan, fields) {
  const { width, height } = plan ?? fields, n = fields.count ?? 1;
  const parts = [`${width} × ${height}`, megapixels(width, height)];
  if (plan) parts.push(bytesText(plan.bytes + plan.weight_bytes) + (plan.fits ? '' : ' (too much for this machine)'));
  if (plan?.seconds > 0) parts.push(secondsText(plan.seconds * n) + (n > 1 ? ` for ${n}` : ''));
  $('cost').replaceChildren(...parts.flatMap((text, i) => [i ? ' · ' : '', el('span', { text })]));
  $('cost').classList.toggle('bad', !!plan && !plan.fits);
  const r = plan?.remarks ?? {}, told = [];
  const sentence = (text) => text[0].toUpperCase() + text.slice(1) + '.';
  if (r.words) told.push(sentence(r.words));
  if (r.read_as) told.push(`It reads the prompt as “${r.read_as}”.`);
  for (const name of ['size', 'images', 'prompt']) if (r[name]) told.push(sentence(r[name]));
  $('remark').textContent = told.join(' ');
}

const plan = later(async () => {
  const mine = ++planned, fields = jobFields();
  if (!fields.width && !fields.mask) return;
  if (!fields.prompt) fields.prompt = 'a picture';
  delete fields.seed;
  try {
    const answer = await call('POST', '/plan', { body: fields });
    if (!settings.prompt.trim() && answer.remarks) answer.remarks = { size: answer.remarks.size, images: answer.remarks.images };
    if (mine === planned) tellCost(answer, fields);
  } catch (problem) {
    if (mine !== planned) return;
    tellCost(null, { ...size(), ...fields });
    if (problem.status === 400) $('remark').textContent = problem.message[0].toUpperCase() + problem.message.slice(1) + '.';
  }
}, 250);

// ---- the form ----

function fillModels() {
  $('model').replaceChildren(...models().map((m) => el('option', { value: m.id, text: m.id })));
  $('model-field').hidden = models().length < 2;
  const names = (list) => [el('option', { value: '', text: "the model's own" }), ...list.map((name) => el('option', { text: name }))];
  $('sampler').replaceChildren(...names(state.about.samplers ?? []));
  $('schedule').replaceChildren(...names((state.about.schedules ?? []).filter((name) => name !== 'auto')));
}

function makeShapes() {
  for (const [name, a, b] of SHAPES) {
    const most = Math.max(a, b) || 1, box = el('i', { class: 'shape' });
    box.style.setProperty('--w', a ? a / most : 0.8);
    box.style.setProperty('--h', b ? b / most : 0.8);
    if (!a) box.classList.add('dashed');
    const input = el('input', { type: 'radio', name: 'shape', value: name, onchange: () => change('shape', name) });
    $('shapes').append(el('label', { title: a ? name : 'Own size' }, input, box, el('span', { text: a ? name : 'Own' })));
  }
}

const FIELDS = ['model', 'scale', 'width', 'height', 'count', 'seed', 'steps', 'guidance', 'sampler', 'schedule', 'strength', 'format', 'negative'];

// Shows the settings in the form, and only what the model can do.
export function show() {
  const m = chosenModel(), now = size();
  for (const name of FIELDS) if (document.activeElement !== $(name)) $(name).value = settings[name];
  if (m) $('model').value = m.id;
  if (document.activeElement !== $('prompt')) $('prompt').value = settings.prompt;
  for (const input of $('shapes').querySelectorAll('input')) input.checked = input.value === settings.shape;
  for (const name of ['width', 'height']) {
    $(name).closest('label').hidden = settings.shape !== 'own';
    $(name).step = m?.token_pixels || 16;
    if (document.activeElement !== $(name)) $(name).value = now[name];
  }
  $('scale').closest('label').hidden = settings.shape === 'own';
  $('steps').placeholder = m ? String(m.steps) : '';
  $('guidance').placeholder = m ? String(m.guidance) : '';
  $('guidance-field').hidden = $('negative-field').hidden = !canGuide(m);
  $('strength-field').hidden = !hasStart();
  const strength = number(settings.strength) ?? (imageFields().mask ? 1 : 0.7);
  $('strength').value = strength;
  $('strength-out').textContent = `${Math.round(strength * 100)} %`;
  $('seed-mode').setAttribute('aria-pressed', String(settings.seed !== ''));
  $('seed-text').textContent = settings.seed === '' ? 'New seed' : `Seed ${settings.seed}`;
  keep('settings', settings);
  emit('settings');
  plan();
}

function change(name, value) {
  if (name === 'shape' && value === 'own' && settings.shape !== 'own') {
    const now = size();
    Object.assign(settings, { width: String(now.width), height: String(now.height) });
    openMore(true);
  }
  if (name === 'seed') value = value.replace(/\D/g, '').slice(0, 15);
  if (name === 'model' && value !== settings.model) Object.assign(settings, { steps: '', guidance: '', width: 0, height: 0 });
  settings[name] = value;
  show();
}

function openMore(open) {
  $('more').hidden = !open;
  $('more-open').setAttribute('aria-expanded', String(open));
}

// Takes settings of a picture or a file: which is 'all', 'prompt', 'seed' or 'size'.
export function useSettings(from, which) {
  const all = which === 'all';
  if (all || which === 'prompt') settings.prompt = from.prompt ?? settings.prompt;
  if (all || which === 'seed') settings.seed = from.seed === undefined ? '' : String(from.seed);
  if (all) {
    for (const name of ['steps', 'guidance', 'sampler', 'schedule', 'strength', 'negative']) settings[name] = from[name] === undefined || from[name] === 'auto' ? '' : String(from[name]);
    if (models().some((m) => m.id === from.model)) settings.model = from.model;
    settings.count = '1';
    settings.format = from.format ?? 'png';
    useImages(from);
  }
  if ((all || which === 'size') && from.width && from.height) setSize(from.width, from.height);
  show();
  grow();
}

export function grow() {
  const box = $('prompt');
  box.style.height = 'auto';
  box.style.height = Math.min(box.scrollHeight + 2, window.innerHeight * 0.3) + 'px';
}

export function startSettings() {
  Object.assign(settings, recall('settings', {}));
  fillModels();
  makeShapes();
  for (const name of FIELDS) {
    const event = $(name).tagName === 'SELECT' ? 'change' : 'input';
    $(name).addEventListener(event, () => change(name, $(name).value));
    if (event === 'input') $(name).addEventListener('blur', show);
  }
  $('prompt').addEventListener('input', () => { change('prompt', $('prompt').value); grow(); });
  $('more-open').addEventListener('click', () => openMore($('more').hidden));
  $('reset').addEventListener('click', () => { Object.assign(settings, FRESH, { model: settings.model }); show(); });
  $('seed-mode').addEventListener('click', () => change('seed', settings.seed !== '' ? '' : String(lastSeed ?? Math.floor(Math.random() * 2 ** 32))));
  on('picture', (p) => { lastSeed = p.seed; });
  on('images', show);
  show();
  grow();
}
