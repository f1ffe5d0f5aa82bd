// state.js: what is known of the server, and what several modules look at.

export const state = {
  about: null, // the answer of /about
  jobs: new Map(), // jobs that wait, run or failed, by id
  pictures: [], // of the gallery, the newest first
  view: { kind: 'empty' }, // {kind: 'job' | 'picture', id}
};

export const models = () => state.about?.models ?? [];
export const modelOf = (id) => models().find((m) => m.id === id) ?? models()[0] ?? null;

// What a model can do. If the server does not say whether it can, the page assumes that it can.
export const canLook = (m) => (m?.most_images ?? 0) > 0 && m.references !== false;
export const canStart = (m) => m?.start_images !== false;
export const canMask = (m) => m?.masks !== false && canStart(m);
export const canGuide = (m) => !!m && !m.guidance_built_in;
export const takesImages = (m) => canLook(m) || canStart(m);

export const picture = (id) => state.pictures.find((p) => p.id === id);
export const isLive = (job) => job.status === 'queued' || job.status === 'in_progress';
export const PAUSED = 'paused by an administrator';
export const isPaused = (job) => job.status === 'queued' && !!state.about?.paused;
export const running = () => [...state.jobs.values()].find((job) => job.status === 'in_progress');
