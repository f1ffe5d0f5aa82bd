/* handlers.h: the functions that answer requests, for the table of route.c. Each sets r->response, or waits for a job or a
 * plan. */
#ifndef LZ_SERVE_HANDLERS_H
#define LZ_SERVE_HANDLERS_H

#include "inside.h"

void handle_models(request *r);
void handle_model(request *r);
void handle_generations(request *r);
void handle_edits(request *r);
void handle_variations(request *r);
void handle_about(request *r);
void handle_openapi(request *r);
void handle_jobs_new(request *r);
void handle_jobs_list(request *r);
void handle_jobs_clear(request *r);
void handle_job(request *r);
void handle_job_cancel(request *r);
void handle_job_retry(request *r);
void handle_job_first(request *r);
void handle_job_events(request *r);
void handle_events(request *r);
void handle_plan(request *r);
void handle_upload(request *r);
void handle_pictures(request *r);
void handle_picture(request *r);
void handle_picture_file(request *r);
void handle_picture_recode(request *r);
void handle_picture_thumb(request *r);
void handle_picture_change(request *r);
void handle_picture_delete(request *r);
void handle_session_new(request *r);
void handle_session_end(request *r);
void handle_model_load(request *r);
void handle_model_unload(request *r);
void handle_pause(request *r);
void handle_resume(request *r);
void handle_health(request *r);
void handle_ready(request *r);
void handle_metrics(request *r);
void handle_page(request *r);
void handle_page_file(request *r);
void handle_file(request *r);
void handle_txt2img(request *r);
void handle_img2img(request *r);
void handle_sd_progress(request *r);
void handle_sd_interrupt(request *r);
void handle_sd_options(request *r);
void handle_sd_options_set(request *r);
void handle_sd_models(request *r);
void handle_sd_list(request *r);
void handle_sd_png_info(request *r);
void handle_sd_ping(request *r);
void handle_sd_memory(request *r);
void handle_sd_unload(request *r);
void handle_sd_reload(request *r);

#endif
