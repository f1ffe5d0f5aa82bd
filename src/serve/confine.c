/* confine.c: see confine.h. Landlock is a part of Linux since 5.13; libc has no functions for it. */
#include "confine.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__linux__) && defined(SYS_landlock_create_ruleset) && __has_include(<linux/landlock.h>)
#include <linux/landlock.h>

/* Everything that changes a file or a folder, as the first version of Landlock knows it. */
#define CHANGES                                                                                                        \
    (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |                  \
     LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |                        \
     LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |                     \
     LANDLOCK_ACCESS_FS_MAKE_SYM)

/* A folder that cannot be opened or named in a rule is left out: nothing can be written there, and the other rules stay
 * in force. */
static void allow(int rules, const char *path) {
    int folder = open(path, O_PATH | O_CLOEXEC);
    if (folder < 0) return;
    struct landlock_path_beneath_attr below = {.allowed_access = CHANGES, .parent_fd = folder};
    syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &below, 0);
    close(folder);
}

bool confine_writes(const char *const *folders) {
    struct landlock_ruleset_attr all = {.handled_access_fs = CHANGES};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    if (rules < 0) return false;
    for (int i = 0; folders[i]; i++) allow(rules, folders[i]);
    bool good = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    close(rules);
    return good;
}

#else
bool confine_writes(const char *const *folders) {
    (void)folders;
    return false;
}
#endif
