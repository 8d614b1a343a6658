/* The dagrun binary. */
#include "scheduler/cli.h"

int main(int argc, char **argv) {
    return dr_cli_main(argc, argv);
}
