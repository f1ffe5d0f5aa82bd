// images.js: images of the request: references that the model looks at, a start image, and its mask. They come by
// dropping, pasting, choosing a file, or from the gallery.
import { $, el, emit, on, iconButton, toast, shortText } from './dom.js';
import { call, thumbUrl, fileUrl } from './api.js';
import { settings, useSettings, setSize, fitShape, chosenModel } from './settings.js';
import { canLook, canStart, takesImages } from './state.js';
import { settingsInside } from './texts.js';

// {name: 'upload:ID' or 'picture:ID', url, title, start: bool, mask: {name, url} or null}
const images = [];
const titles = new Map(); // of images that were added, by name
let closeOffer = null; // of the last message that offers the settings of a file

export const hasStart = () => images.some((image) => image.start);

// The first image of a request with a strength or a mask is where the picture starts.
export function imageFields() {
  if (!images.length) return {};
  const sorted = [...images].sort((a, b) => Number(b.start) - Number(a.start));
  const fields = { images: sorted.map((image) => image.name) };
  if (sorted[0].mask) fields.mask = sorted[0].mask.name;
  return fields;
}

// The server says "image 2: ..."; this page knows what the file was called.
export function withTitle(message, job) {
  return message?.replace(/^image (\d+)(?=:)/, (number, n) => titles.get(job.settings?.images?.[n - 1]) ?? number);
}

function most() {
  const m = chosenModel();
  return (canLook(m) ? m.most_images : 0) + (canStart(m) ? 1 : 0);
}

// ---- the list ----

function changed() {
  const m = chosenModel();
  if (!canLook(m)) images.splice(1);
  if (images.filter((image) => image.start).length > 1) images.forEach((image, i) => { image.start &&= images.findIndex((other) => other.start) === i; });
  for (const image of images) if (!canLook(m)) image.start = true;
  draw();
  emit('images');
}

function roleOf(image) {
  const m = chosenModel();
  if (image.mask) return el('span', { class: 'role', text: 'Repaint a part' });
  if (!canLook(m) || !canStart(m)) return el('span', { class: 'role', text: image.start ? 'Start from it' : 'Look at it' });
  const select = el('select', { 'aria-label': `What to do with ${image.title}`, onchange: () => {
    images.forEach((other) => { other.start = false; });
    image.start = select.value === 'start';
    changed();
  } }, el('option', { value: 'look', text: 'Look at it' }), el('option', { value: 'start', text: 'Start from it' }));
  select.value = image.start ? 'start' : 'look';
  return select;
}

function move(image, by) {
  const at = images.indexOf(image), to = at + by;
  if (to < 0 || to >= images.length) return;
  images.splice(at, 1);
  images.splice(to, 0, image);
  changed();
  $('images').children[to]?.querySelector(by < 0 ? '.back' : '.on')?.focus();
}

function draw() {
  $('images').hidden = !images.length;
  $('images').replaceChildren(...images.map((image, i) => {
    const shown = el('span', { class: 'small-picture' }, el('img', { src: image.url, alt: image.title }));
    if (image.mask) shown.append(el('img', { src: image.mask.url, alt: '', class: 'veil' }));
    const back = iconButton('left', `Move ${image.title} to the front`, () => move(image, -1));
    const forth = iconButton('right', `Move ${image.title} to the back`, () => move(image, 1));
    back.classList.add('back');
    forth.classList.add('on');
    back.hidden = i === 0;
    forth.hidden = i === images.length - 1;
    return el('div', { class: 'image' }, shown, el('div', {}, el('span', { class: 'name', text: shortText(image.title, 24) }), roleOf(image)),
      back, forth, iconButton('close', `Remove ${image.title}`, () => { images.splice(images.indexOf(image), 1); changed(); $('prompt').focus(); }));
  }));
}

function add(image) {
  const m = chosenModel();
  if (!takesImages(m)) return toast('This model takes no images.');
  if (!canLook(m)) images.length = 0;
  if (images.length >= most()) return toast(`This model takes at most ${most()} image${most() > 1 ? 's' : ''}.`);
  images.push({ start: !canLook(m), mask: null, ...image });
  titles.set(image.name, image.title);
  if (images.at(-1).start) fitShape(image.width, image.height); // a start image is stretched to the size of the picture
  changed();
}

export function addPicture(p) {
  add({ name: 'picture:' + p.id, url: thumbUrl(p.id), title: shortText(p.settings?.prompt ?? p.id, 40), width: p.width, height: p.height });
  toast('The picture is an image of the next one.', [], 4);
}

// The picture with a mask becomes the only start image.
export function setMask(p, mask) {
  const at = images.findIndex((image) => image.start);
  if (at >= 0) images.splice(at, 1);
  if (!canLook(chosenModel())) images.length = 0;
  images.unshift({ name: 'picture:' + p.id, url: fileUrl(p.id), title: shortText(p.settings?.prompt ?? p.id, 40), start: true, mask });
  settings.strength = '';
  setSize(p.width, p.height);
  changed();
}

// ---- files ----

// Can the browser decode it? The server decodes an image when the picture is made, which is late to hear that it is damaged.
async function isWhole(file) {
  try {
    (await createImageBitmap(file)).close();
    return true;
  } catch {
    return false;
  }
}

async function addFile(file) {
  if (!takesImages(chosenModel())) return toast('This model takes no images.');
  const name = file.name || 'The image', refuse = () => toast(`${name} is not a PNG, JPEG or WebP picture, or it is damaged.`);
  if (!file.size || !/^image\/(png|jpeg|webp)$/.test(file.type) || !(await isWhole(file))) return refuse();
  try {
    const found = await settingsInside(file), answer = await call('POST', '/uploads', { body: file });
    const image = { name: 'upload:' + answer.id, url: URL.createObjectURL(file), title: file.name || 'pasted image', width: answer.width, height: answer.height };
    add(image);
    if (found) closeOffer?.();
    if (found) closeOffer = toast(`${image.title} was made by Lazuli.`, [['Use its settings instead', () => {
      const at = images.findIndex((other) => other.url === image.url);
      if (at >= 0) images.splice(at, 1);
      changed();
      useSettings(found, 'all');
    }]], 15);
  } catch (problem) {
    if (problem.code === 'invalid_image' && /neither a PNG|damaged/.test(problem.message)) return refuse();
    problem.message = problem.message.replace(/^image:/, `${name}:`); // the server does not know its name
    emit('problem', problem);
  }
}

// Every image of a picture that is still here; uploads are gone when the window was closed.
export function useImages(from) {
  const names = from.images ?? [];
  images.length = 0;
  for (const [i, name] of names.entries())
    if (name.startsWith('picture:') && !from.mask)
      images.push({ name, url: thumbUrl(name.slice(8)), title: `image ${i + 1}`, start: i === 0 && from.strength > 0, mask: null });
  if (images.length < names.length) toast('Images that were uploaded, and masks, must be added again.');
  changed();
}

const filesOf = (transfer) => [...(transfer?.files ?? [])];

export function startImages() {
  let model = chosenModel()?.id;
  on('settings', () => { if (chosenModel()?.id !== model) { model = chosenModel()?.id; if (images.length) changed(); } });
  $('add-image').addEventListener('click', () => $('file').click());
  $('file').addEventListener('change', async () => {
    for (const file of [...$('file').files]) await addFile(file);
    $('file').value = '';
  });
  let depth = 0;
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].some((type) => type === 'Files' || type === 'text/lazuli-picture');
  const over = (more) => { depth = Math.max(0, depth + more); document.body.classList.toggle('dropping', depth > 0); };
  document.addEventListener('dragenter', (event) => { if (hasFiles(event)) { event.preventDefault(); over(1); } });
  document.addEventListener('dragleave', (event) => { if (hasFiles(event)) over(-1); });
  document.addEventListener('dragover', (event) => { if (hasFiles(event)) event.preventDefault(); });
  document.addEventListener('drop', async (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    over(-depth);
    const id = event.dataTransfer.getData('text/lazuli-picture');
    if (id) return emit('add-picture', id);
    for (const file of filesOf(event.dataTransfer)) await addFile(file);
  });
  document.addEventListener('paste', async (event) => {
    const files = filesOf(event.clipboardData);
    if (!files.length || event.clipboardData.types.includes('text/plain')) return;
    event.preventDefault();
    for (const file of files) await addFile(file);
  });
}
