/* crew.h: what a worker of a fleet knows; for worker.c and tickets.c. */
#ifndef LZ_SERVE_CREW_H
#define LZ_SERVE_CREW_H

#include "fleet.h"

struct crew {
    redis take;                              /* reads tickets */
    redis control;                           /* a subscription: cancels, and questions for plans */
    bool reading;                            /* a read of tickets is under way */
    job *job;                                /* that is this worker's; owned; or NULL */
    picture picture;                         /* that is being made */
    bool painting;                           /* the child has it */
    bool made;                               /* the file is in its place, and Redis is to be told */
    bool over;                               /* the job is not this worker's any more; it waits for the child */
    char entry[64];                          /* the ticket of the job */
    int model;                               /* index, of the ticket */
    int streak;                              /* jobs in a row of the loaded model */
    double renewed, claimed, beaten, tidied; /* steady */
    double touched;                          /* steady: when the folder of this worker was marked as used */
    char *facts[SERVE_MODELS];               /* of models, as JSON; owned; NULL: not opened yet */
};

void crew_forget(front *f); /* the job */

/* tickets.c */
bool crew_make_groups(front *f);  /* of the streams; false: Redis is away */
void crew_find_work(front *f);    /* asks for a ticket, if there is no job */
void crew_read_tickets(front *f); /* what was answered */
/* id: of the job that was drawn with the ticket, or "" */
void crew_give_back(front *f, int index, const char *entry, const char *id);

#endif
