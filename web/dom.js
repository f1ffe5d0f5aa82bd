// dom.js: small helpers that every module uses: elements, messages, texts of numbers, storage.

export const $ = (id) => document.getElementById(id);

// el('button', {class: 'quiet', onclick: f, 'aria-label': 'Close'}, 'text', child...)
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'class') node.className = value;
    else if (name === 'text') node.textContent = value;
    else if (name in node && !name.startsWith('aria-') && name !== 'list') node[name] = value;
    else if (value !== false) node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function icon(name) {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg'), use = document.createElementNS(space, 'use');
  use.setAttribute('href', '#i-' + name);
  svg.setAttribute('aria-hidden', 'true');
  svg.append(use);
  return svg;
}

export const iconButton = (name, label, onclick, title = label) =>
  el('button', { type: 'button', class: 'icon', 'aria-label': label, title, onclick }, icon(name));

// ---- events between modules ----

const bus = new EventTarget();
export const emit = (name, detail) => bus.dispatchEvent(new CustomEvent(name, { detail }));
export const on = (name, f) => bus.addEventListener(name, (event) => f(event.detail));

// ---- messages ----

let lastSaid = '';
// Tells a screen reader. The same text twice is said twice.
export function say(text) {
  $('say').textContent = text === lastSaid ? text + '\u00a0' : text;
  lastSaid = $('say').textContent;
}

// A message for some seconds, with buttons: [['Undo', f], ...]. One without buttons takes the place of
// an older one with the same text, and three are shown at most. Returns a function that removes it.
export function toast(text, actions = [], seconds = 8) {
  const node = el('div', { class: 'toast' }, el('p', { text }));
  let timer;
  const remove = () => { clearTimeout(timer); node.remove(); };
  const wait = () => { clearTimeout(timer); timer = setTimeout(remove, seconds * 1000); };
  for (const [label, f] of actions)
    node.append(el('button', { type: 'button', class: 'quiet', text: label, onclick: () => { remove(); f(); } }));
  node.append(iconButton('close', 'Close the message', remove));
  for (const stop of ['pointerenter', 'focusin']) node.addEventListener(stop, () => clearTimeout(timer));
  for (const go of ['pointerleave', 'focusout']) node.addEventListener(go, wait);
  if (!actions.length) for (const old of [...$('toasts').children]) if (old.firstElementChild.textContent === text) old.remove();
  $('toasts').append(node);
  while ($('toasts').childElementCount > 3) $('toasts').firstElementChild.remove();
  say(text);
  wait();
  return remove;
}

// The clipboard of browsers is for https and localhost only; elsewhere a hidden field is copied from.
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = el('textarea', { value: text, class: 'hidden', 'aria-hidden': 'true' });
    document.body.append(field);
    field.select();
    document.execCommand('copy');
    field.remove();
  }
  toast(what + ' copied.', [], 3);
}

// ---- texts ----

export function secondsText(s) {
  if (s < 1) return 'less than a second';
  if (s < 10) return `about ${Math.round(s)} s`;
  if (s < 90) return `about ${Math.round(s / 5) * 5} s`;
  if (s < 5400) return `about ${Math.round(s / 60)} min`;
  return `about ${(s / 3600).toFixed(1)} h`;
}

export function bytesText(n) {
  if (n < 1 << 20) return `${Math.max(1, Math.round(n / 1024))} KiB`;
  if (n < 1 << 30) return `${Math.round(n / (1 << 20))} MiB`;
  return `${(n / (1 << 30)).toFixed(1)} GiB`;
}

export function megapixels(w, h) {
  const n = (w * h) / 1e6;
  return `${n < 0.1 ? n.toFixed(2) : n.toFixed(1)} MP`;
}

export const shortText = (text, most = 80) => (text.length > most ? text.slice(0, most - 1) + '…' : text);

// ---- storage: a browser may refuse it, and then the page works without ----

export function recall(name, otherwise) {
  try {
    const text = localStorage.getItem('lazuli.' + name);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

export function keep(name, value) {
  try {
    localStorage.setItem('lazuli.' + name, JSON.stringify(value));
  } catch { /* private windows */ }
}

export function later(f, milliseconds) {
  let timer;
  return (...args) => { clearTimeout(timer); timer = setTimeout(() => f(...args), milliseconds); };
}
