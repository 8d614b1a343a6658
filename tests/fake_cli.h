/* Runs the dagrun binary and keeps what it said; models and folders for tests of the command line.
 */
#ifndef DR_TESTS_FAKE_CLI_H
#define DR_TESTS_FAKE_CLI_H

#include <sys/types.h>

struct cli_run {
    int code; /* exit code; 128 + signal */
    char *out, *err;
};
/* `args`: words after the program's name, split at blanks. */
struct cli_run cli_run(const char *binary, const char *args);
void cli_run_free(struct cli_run *r);

/* A fresh folder; removed by cli_folder_remove with all that is in it. */
char *cli_folder(void);
void cli_folder_remove(char *folder);
/* Writes `text` to folder/name; returns the path (to be freed). */
char *cli_file(const char *folder, const char *name, const char *text);

/* images.npy [n, 4, 4, 1] u8 and labels.npy [n] u8: the class (0..3) is the bright quadrant. */
void cli_quadrants(const char *folder, int n);
/* A model that learns them: 2 epochs of batch 8 over 64 samples, 20 for evaluation. */
extern const char cli_quadrants_yaml[];

/* A fresh folder with both. */
struct cli_place {
    char *folder, *yaml;
};
struct cli_place cli_place_create(void);
void cli_place_remove(struct cli_place *p);

#endif
