/* heads.h: what files on a hub are, by their first bytes, before their weights are downloaded. */
#ifndef LZ_CLI_HEADS_H
#define LZ_CLI_HEADS_H

#include "pull/hub.h"

/* Refuses a file that is no part of a model that Lazuli runs, and no LoRA. gets: of h->files, with their addresses;
 * files that are here already are skipped. Returns an exit code. */
int heads_check(hub *h, const get *gets);

/* The option that takes a file: "-m", "--text-encoder", "--vision", "--vae", "--lora"; NULL: it is of no use. */
const char *option_for(const lz_file_facts *facts);

#endif
