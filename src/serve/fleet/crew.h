/* crew.h: what a worker of a fleet knows; for worker.c, tickets.c and tests. */
#ifndef LZ_SERVE_CREW_H
#define LZ_SERVE_CREW_H

#include "fleet.h"

/* The jobs of a worker are in front.jobs, from script_draw until they are not this worker's any more. Pictures of them that
 * the child has are in child.seats. */
enum { APART = 8, KINDS = 16 };
struct crew {
    redis take;                  /* reads tickets */
    redis control;               /* a subscription: cancels, and questions for plans */
    bool reading;                /* a read of tickets is under way */
    char apart[APART][ID_BYTES]; /* jobs that could not be made together with others, lately */
    int n_apart;                 /* ever */
    struct crew_kind {
        char kind[65]; /* of pictures, see queue_kind */
        int model;     /* index */
        int most;      /* of them are made together, as the child told when it made one */
    } kinds[KINDS];
    int n_kinds;                             /* ever */
    int streak;                              /* jobs in a row of the loaded model */
    double renewed, claimed, beaten, tidied; /* steady */
    double touched;                          /* steady: when the folder of this worker was marked as used */
    char *facts[SERVE_MODELS];               /* of models, as JSON; owned; NULL: not opened yet */
};

/* worker.c */
void crew_drop(front *f, job *j); /* the job is not this worker's any more */
void crew_read_control(front *f); /* cancels, and questions for plans */

/* tickets.c */
bool crew_make_groups(front *f);  /* of the streams; false: Redis is away */
job *crew_next(front *f);         /* a job whose next picture can be given to the child; or NULL */
void crew_find_work(front *f);    /* asks for a ticket, if the child waits for pictures and there is no job for it */
void crew_read_tickets(front *f); /* what was answered */
void crew_learn(front *f, const job *j, int most); /* so many pictures of this kind are made together */
void crew_join(front *f,
               const job *first);     /* takes more jobs, whose pictures may be made together with those of first */
void crew_put_back(front *f, job *j); /* a job that joined another, and was not begun */
/* id: of the job that was drawn with the ticket, or "" */
void crew_give_back(front *f, int index, const char *entry, const char *id);

#endif
