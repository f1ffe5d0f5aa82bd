// main.js: starts the page.
import { $, el, emit, on, copy, keep, recall, say, later } from './dom.js';
import { call, followEvents } from './api.js';
import { state, models, takesImages, canLook } from './state.js';
import { startSettings, settings, show, grow, chosenModel } from './settings.js';
import { startImages } from './images.js';
import { startQueue, make } from './queue.js';
import { startGallery } from './gallery.js';
import { startViewer } from './viewer.js';
import { startDetails } from './details.js';
import { startCompare } from './compare.js';
import { startMask } from './mask.js';
import { startKeys } from './keys.js';

const EXAMPLES = {
  demo: ['a fox in 3d style on a blue background', 'two red apples', 'a blue dog', 'a cup of coffee'],
  other: ['a red fox in the first snow, soft morning light, 35 mm photograph', 'a lighthouse in a storm, oil painting with thick strokes', 'a cup of tea on a window sill, rain outside, watercolour', 'a paper model of a mountain village, warm studio light'],
};

// ---- messages ----

function showProblem(problem) {
  $('problem').hidden = !problem;
  $('prompt').toggleAttribute('data-checked', !!problem);
  if (!problem) return $('prompt').removeAttribute('aria-invalid');
  $('problem-text').textContent = problem.message;
  $('problem-copy').hidden = !(problem.status || problem.job);
  $('problem').dataset.code = problem.code ?? '';
}

function startProblems() {
  on('problem', showProblem);
  $('problem-close').addEventListener('click', () => { showProblem(null); $('prompt').focus(); });
  $('problem-copy').addEventListener('click', () => copy($('problem-text').textContent, 'The message was'));
  $('prompt').addEventListener('input', () => { if ($('prompt').hasAttribute('aria-invalid')) showProblem(null); });
}

// A short break is not worth a word.
function startConnection() {
  let lost = false, timer = 0;
  on('lost', () => { lost = true; timer ||= setTimeout(() => { $('lost').hidden = !lost; }, 1500); });
  on('connected', () => {
    if (lost && !$('lost').hidden) say('The connection is back.');
    lost = false;
    clearTimeout(timer);
    timer = 0;
    $('lost').hidden = true;
    if ($('problem').dataset.code === 'unreachable') showProblem(null);
    about();
  });
}

// ---- colours ----

const THEMES = ['auto', 'light', 'dark'];

function startTheme() {
  let theme = recall('theme', 'auto');
  const set = () => {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    $('theme').setAttribute('aria-label', `Colours: ${theme === 'auto' ? 'as the system' : theme}`);
  };
  $('theme').addEventListener('click', () => { theme = THEMES[(THEMES.indexOf(theme) + 1) % 3]; keep('theme', theme); set(); say($('theme').getAttribute('aria-label')); });
  set();
}

// ---- the model ----

async function about() {
  try {
    state.about = await call('GET', '/about');
    emit('about');
    tellModel();
    if (models().some((m) => !m.known)) setTimeout(async () => { await about(); show(); }, 1500); // models are being opened
    return true;
  } catch {
    return false;
  }
}

function tellModel() {
  const m = chosenModel(), device = state.about.device || 'starting';
  $('where').replaceChildren(...(m ? [m.id, el('span', { text: ` · ${device.replace(/,.*/, '')}` })] : []));
  $('where').title = `Lazuli ${state.about.version}, ${m?.family ?? ''}, on ${device}`;
  $('help-model').textContent = m ? `The model ${m.id} (${m.family}) runs on ${device}. Lazuli ${state.about.version}.` : '';
  $('add-image').hidden = !takesImages(m);
  $('add-image').title = canLook(m) ? 'Add an image to look at or to start from; dropping and pasting work too' : 'Add an image to start from; dropping and pasting work too';
  if (m?.id === 'demo') $('hint').textContent = 'This small model draws emoji: one to six of a thing, or two things, with colours and a style. With an image, say what to change: make it blue.';
}

function startExamples() {
  const list = models()[0]?.id === 'demo' ? EXAMPLES.demo : EXAMPLES.other;
  $('examples').replaceChildren(...list.map((text) => el('li', {}, el('button', { type: 'button', class: 'quiet', text, onclick: () => {
    settings.prompt = text;
    show();
    grow();
    $('make').focus();
  } }))));
}

async function start() {
  startTheme();
  startProblems();
  for (const button of document.querySelectorAll('[data-close]')) button.addEventListener('click', () => button.closest('dialog').close());
  for (const dialog of document.querySelectorAll('dialog.sheet:not(#lock)')) dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
  while (!(await about())) {
    $('lost').hidden = false;
    await new Promise((resolve) => setTimeout(resolve, 1500));
  }
  $('lost').hidden = true;
  startSettings();
  startImages();
  startExamples();
  startViewer();
  startGallery();
  startDetails();
  startCompare();
  startMask();
  startKeys();
  startQueue();
  startConnection();
  on('settings', later(tellModel, 0));
  $('composer').addEventListener('submit', (event) => { event.preventDefault(); make(); });
  window.addEventListener('resize', later(grow, 100));
  document.body.dataset.ready = 'true';
  followEvents();
}

start();
