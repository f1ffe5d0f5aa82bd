// api.js: requests to /api/v1, and the stream of events. No other module calls fetch for JSON.
import { $, emit, el } from './dom.js';

const base = new URL('api/v1', document.baseURI).href;

// An error of a request. Its message is the sentence of the server. Its status is 0 if the server could not be reached.
class Problem extends Error {
  constructor(status, code, message, param) {
    super(message);
    Object.assign(this, { status, code, param });
  }
}

export const fileUrl = (id) => `${base}/pictures/${id}/file`;
export const thumbUrl = (id) => `${base}/pictures/${id}/thumb`;

export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

async function problemOf(answer) {
  let error = {};
  try {
    error = (await answer.json()).error ?? {};
  } catch { /* no JSON: a proxy answered */ }
  return new Problem(answer.status, error.code ?? '', error.message ?? `The server answered ${answer.status} ${answer.statusText}.`, error.param);
}

// Answers the JSON. options: body (an object or a Blob), headers, keepalive, ignored: a function that is told which
// fields the server ignored.
export async function call(method, path, options = {}) {
  const headers = { ...options.headers }, init = { method, headers, keepalive: options.keepalive, cache: 'no-store' };
  if (options.body instanceof Blob) {
    init.body = options.body;
    headers['content-type'] = options.body.type || 'application/octet-stream';
  } else if (options.body) {
    init.body = JSON.stringify(options.body);
    headers['content-type'] = 'application/json';
  }
  let answer;
  try {
    answer = await fetch(base + path, init);
  } catch {
    throw new Problem(0, 'unreachable', 'The server cannot be reached.');
  }
  if (answer.status === 401 && path !== '/session') {
    await askForKey();
    return call(method, path, options);
  }
  if (!answer.ok) throw await problemOf(answer);
  const ignored = answer.headers.get('x-lazuli-ignored');
  if (ignored && options.ignored) options.ignored(ignored);
  return answer.json();
}

// ---- keys ----

let asking = null;

// Opens the dialog for a key, once for all requests that wait. Resolves when a session is open.
function askForKey() {
  asking ??= new Promise((resolve) => {
    const dialog = $('lock');
    dialog.addEventListener('cancel', (event) => event.preventDefault());
    $('lock-form').onsubmit = async (event) => {
      event.preventDefault();
      try {
        await call('POST', '/session', { body: { key: $('key').value.trim() } });
        $('key').value = '';
        dialog.close();
        asking = null;
        resolve();
      } catch (problem) {
        $('lock-problem').textContent = problem.message;
        $('key').select();
      }
    };
    dialog.showModal();
  });
  return asking;
}

// ---- events ----

let lastId = '';
const SILENCE = 25000; // milliseconds; the server says something every 10 s

function take(block) {
  let type = 'message', data = '';
  for (const line of block.split('\n')) {
    if (line.startsWith('event: ')) type = line.slice(7);
    else if (line.startsWith('data: ')) data += line.slice(6);
    else if (line.startsWith('id: ')) lastId = line.slice(4);
  }
  if (data) emit('server:' + type, JSON.parse(data));
}

// true: a key was given, and the stream can be opened again.
async function readEvents() {
  const abort = new AbortController();
  let timer = setTimeout(() => abort.abort(), SILENCE);
  const headers = { accept: 'text/event-stream' };
  if (lastId) headers['last-event-id'] = lastId;
  const answer = await fetch(base + '/events', { headers, signal: abort.signal, cache: 'no-store' });
  if (answer.status === 401) {
    clearTimeout(timer);
    await askForKey();
    return true;
  }
  if (!answer.ok) throw await problemOf(answer);
  emit('connected');
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(), SILENCE);
    if (done) break;
    text += value;
    const blocks = text.split('\n\n');
    text = blocks.pop();
    blocks.forEach(take);
  }
  clearTimeout(timer);
}

// Follows the events for ever; emits 'connected' and 'lost', and 'server:TYPE' for each event.
export async function followEvents() {
  let pause = 500;
  for (;;) {
    const begun = Date.now();
    try {
      if (await readEvents()) continue;
    } catch { /* the connection broke: try again */ }
    emit('lost');
    pause = Date.now() - begun > 5000 ? 500 : Math.min(pause * 1.6, 8000);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

// Saves bytes as a file of the visitor.
export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob), link = el('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
