/* Reading the command line. */
#include "scheduler/cli.h"

#include "graph/scalar.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPT_CHECK = 256,
    OPT_PLAN,
    OPT_DOT,
    OPT_BENCH,
    OPT_VERIFY,
    OPT_EVAL,
    OPT_INFER,
    OPT_TUNE,
    OPT_DUMP,
    OPT_OPS,
    OPT_DEVICE,
    OPT_SET,
    OPT_JSON,
    OPT_THREADS,
    OPT_STEPS,
    OPT_LOAD,
    OPT_SAVE,
    OPT_RESUME,
    OPT_TRACE,
    OPT_VERSION,
};

static const struct option options[] = {
    {"check", no_argument, NULL, OPT_CHECK},
    {"plan", no_argument, NULL, OPT_PLAN},
    {"dot", no_argument, NULL, OPT_DOT},
    {"bench", no_argument, NULL, OPT_BENCH},
    {"verify", no_argument, NULL, OPT_VERIFY},
    {"eval", no_argument, NULL, OPT_EVAL},
    {"infer", no_argument, NULL, OPT_INFER},
    {"tune", no_argument, NULL, OPT_TUNE},
    {"dump", required_argument, NULL, OPT_DUMP},
    {"ops", no_argument, NULL, OPT_OPS},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"set", required_argument, NULL, OPT_SET},
    {"json", no_argument, NULL, OPT_JSON},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"steps", required_argument, NULL, OPT_STEPS},
    {"load", required_argument, NULL, OPT_LOAD},
    {"save", required_argument, NULL, OPT_SAVE},
    {"resume", required_argument, NULL, OPT_RESUME},
    {"trace", required_argument, NULL, OPT_TRACE},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static const char help[] =
    "dagrun [options] MODEL.yaml          with no mode: run it (train with eval, or infer)\n"
    "\n"
    "modes, at most one; -o FILE receives the output\n"
    "  --check        load, infer shapes, plan, prove, stop; with -v the layer table\n"
    "  --plan         stages, streams, waits, buffers, memory, the bound, the choice and why\n"
    "  --dot          the plan as Graphviz: dagrun --dot m.yaml | dot -Tsvg -o m.svg\n"
    "                 (-v: never collapse chains)\n"
    "  --bench        time of a step: warm-up, then median, p5, p95 of --steps N (default 100)\n"
    "  --verify       run as planned and sequentially from one seed; losses and weights must be\n"
    "                 equal bit for bit (--steps N; default: all, at most 200)\n"
    "  --eval         one pass over the evaluation split\n"
    "  --infer        one pass over data.infer\n"
    "  --tune         time each kernel that could compute a convolution on this GPU; later runs\n"
    "                 take the faster ones (kept in ~/.cache/dagrun)\n"
    "  --dump PASS    the graph as text after a pass\n"
    "  --ops [OP]     the op reference (--json: a JSON Schema for editors)\n"
    "options\n"
    "  --device D     cpu (default), cuda, cuda:N\n"
    "  --set K=V      override a value of the YAML, e.g. --set train.steps=10; may be repeated\n"
    "  --threads N    threads of the CPU (default: all cores)\n"
    "  --load FILE    weights from a safetensors file by their full names\n"
    "  --save FILE    after training: weights, and what --resume needs\n"
    "  --resume FILE  go on with a training that --save wrote; train.steps counts from its start\n"
    "  --trace FILE   what ran when, as Chrome trace events (ui.perfetto.dev)\n"
    "  --json         results as one JSON object; times in seconds unless a key says otherwise\n"
    "  -o FILE        results to a file, which is written whole or not at all\n"
    "  -q, -v         say less, say more\n"
    "  --version, -h, --help\n"
    "\n"
    "exit codes: 0 done; 1 failed while running; 2 the command line or the YAML is wrong;\n"
    "3 device or memory; 4 verification failed; 130 interrupted\n";

static const char *const mode_names[] = {
    [DR_CLI_RUN] = NULL,
    [DR_CLI_CHECK] = "--check",
    [DR_CLI_PLAN] = "--plan",
    [DR_CLI_DOT] = "--dot",
    [DR_CLI_BENCH] = "--bench",
    [DR_CLI_VERIFY] = "--verify",
    [DR_CLI_EVAL] = "--eval",
    [DR_CLI_INFER] = "--infer",
    [DR_CLI_TUNE] = "--tune",
    [DR_CLI_DUMP] = "--dump",
    [DR_CLI_OPS] = "--ops",
    [DR_CLI_HELP] = "--help",
    [DR_CLI_VERSION] = "--version",
};

static bool set_mode(struct dr_cli *c, enum dr_cli_mode mode) {
    if (c->mode != DR_CLI_RUN) {
        dr_cli_error("one mode at most: %s or %s", mode_names[c->mode], mode_names[mode]);
        return false;
    }
    c->mode = mode;
    return true;
}

static bool positive(const char *option, const char *text, int64_t max, int64_t *out) {
    if (dr_parse_int(text, out) && *out >= 1 && *out <= max)
        return true;
    dr_cli_error("%s wants a whole number from 1 to %lld, not '%s'", option, (long long)max, text);
    return false;
}

static bool named(const char *option, const char *file) {
    if (!*file)
        dr_cli_error("%s wants the name of a file", option);
    return *file;
}

static bool known_pass(struct dr_cli *c, const char *name) {
    const char *const *names;
    const uint32_t n = dr_pass_names(&names);
    struct dr_text all = {.arena = c->arena};
    for (uint32_t i = 0; i < n; i++) {
        if (!strcmp(names[i], name))
            return true;
        dr_text_add(&all, "%s%s", i ? ", " : "", names[i]);
    }
    dr_cli_error("--dump: no pass is named '%s'%s (passes: %s)", name,
                 dr_did_you_mean(c->arena, name, names, n), all.at);
    return false;
}

static bool known_device(const char *text) {
    const size_t n = strlen(text);
    if (!strcmp(text, "cpu") || !strcmp(text, "cuda"))
        return true;
    if (!strncmp(text, "cuda:", 5) && n > 5 && n < 9 && strspn(text + 5, "0123456789") == n - 5)
        return true;
    dr_cli_error("--device wants cpu, cuda or cuda:N, not '%s'", text);
    return false;
}

static bool unknown_option(struct dr_cli *c, const char *arg) {
    const char *names[sizeof options / sizeof *options];
    uint32_t n = 0;
    for (const struct option *o = options; o->name; o++)
        names[n++] = dr_printf(c->arena, "--%s", o->name);
    const char *equals = strchr(arg, '=');
    const char *name = equals ? dr_strndup(c->arena, arg, (size_t)(equals - arg)) : arg;
    for (const struct option *o = options; o->name; o++)
        if (equals && !strncmp(name, "--", 2) && !strcmp(name + 2, o->name)) {
            dr_cli_error("option %s takes no value", name);
            return false;
        }
    dr_cli_error("unknown option %s%s", name, dr_did_you_mean(c->arena, name, names, n));
    return false;
}

static bool take_option(struct dr_cli *c, int opt) {
    int64_t n = 0;
    switch (opt) {
    case 'o':
        c->out = optarg;
        return named("-o", optarg);
    case 'q':
        c->quiet = true;
        return true;
    case 'v':
        c->verbose = true;
        return true;
    case 'h':
        return set_mode(c, DR_CLI_HELP);
    case OPT_VERSION:
        return set_mode(c, DR_CLI_VERSION);
    case OPT_DUMP:
        c->dump = optarg;
        return set_mode(c, DR_CLI_DUMP) && known_pass(c, optarg);
    case OPT_DEVICE:
        c->device = optarg;
        return known_device(optarg);
    case OPT_SET:
        c->sets[c->n_sets++] = optarg;
        return true;
    case OPT_JSON:
        c->json = true;
        return true;
    case OPT_THREADS:
        if (!positive("--threads", optarg, 1024, &n))
            return false;
        c->threads = (uint32_t)n;
        return true;
    case OPT_TRACE:
        c->trace = optarg;
        return named("--trace", optarg);
    case OPT_LOAD:
        c->load = optarg;
        return named("--load", optarg);
    case OPT_SAVE:
        c->save = optarg;
        return named("--save", optarg);
    case OPT_RESUME:
        c->resume = optarg;
        return named("--resume", optarg);
    case OPT_STEPS:
        return positive("--steps", optarg, 1000000000, &c->steps);
    default:
        return set_mode(c, (enum dr_cli_mode)(opt - OPT_CHECK + DR_CLI_CHECK));
    }
}

/* An option that does not apply is an error: it would be ignored otherwise. */
static bool consistent(struct dr_cli *c) {
    const char *mode = mode_names[c->mode] ? mode_names[c->mode] : "a run";
    const char *wrong = NULL;
    const bool runs = c->mode == DR_CLI_RUN || c->mode == DR_CLI_BENCH || c->mode == DR_CLI_EVAL ||
                      c->mode == DR_CLI_INFER;
    if (c->steps && c->mode != DR_CLI_BENCH && c->mode != DR_CLI_VERIFY)
        wrong = "--steps";
    else if (c->trace && !runs)
        wrong = "--trace";
    else if (c->load && !runs && c->mode != DR_CLI_VERIFY && c->mode != DR_CLI_CHECK)
        wrong = "--load";
    else if ((c->save || c->resume) && c->mode != DR_CLI_RUN)
        wrong = c->save ? "--save" : "--resume";
    else if (c->json && (c->mode == DR_CLI_DOT || c->mode == DR_CLI_DUMP))
        wrong = "--json";
    else if (c->mode == DR_CLI_OPS && (c->device || c->n_sets || c->threads || c->quiet))
        wrong = c->device ? "--device" : c->n_sets ? "--set" : c->threads ? "--threads" : "-q";
    else if (c->verbose && (c->mode == DR_CLI_OPS || c->mode == DR_CLI_DUMP))
        wrong = "-v";
    if (wrong)
        dr_cli_error("%s does not go with %s", wrong, mode);
    else if (c->load && c->resume)
        dr_cli_error("%s", wrong = "--load begins a run, --resume goes on with one: give one");
    else if (c->quiet && c->verbose)
        dr_cli_error("%s", wrong = "-q and -v contradict each other");
    else if (!c->model && c->mode != DR_CLI_OPS)
        dr_cli_error("%s", wrong = "MODEL.yaml is missing (dagrun --help)");
    return !wrong;
}

static bool parse(struct dr_cli *c, int argc, char **argv) {
    opterr = 0;
    optind = 0; /* glibc: start afresh, also when called twice */
    for (;;) {
        const int at = optind ? optind : 1;
        const int opt = getopt_long(argc, argv, ":o:qvh", options, NULL);
        if (opt == -1)
            break;
        const char *arg = at < argc ? argv[at] : "";
        if (opt == ':') {
            dr_cli_error("option %s needs a value", argv[optind - 1]);
            return false;
        }
        if (opt == '?') {
            const bool is_long = !strncmp(argv[optind - 1], "--", 2);
            return unknown_option(c, is_long
                                         ? argv[optind - 1]
                                         : dr_printf(c->arena, "-%c", optopt ? optopt : arg[1]));
        }
        if (!take_option(c, opt))
            return false;
        if (c->mode == DR_CLI_HELP || c->mode == DR_CLI_VERSION)
            return true;
    }
    if (argc - optind > 1) {
        dr_cli_error("one MODEL.yaml at most: '%s' or '%s'", argv[optind], argv[optind + 1]);
        return false;
    }
    c->model = argc > optind ? argv[optind] : NULL;
    return consistent(c);
}

int dr_cli_main(int argc, char **argv) {
    struct dr_arena *a = dr_arena_create();
    struct dr_cli c = {.arena = a, .text = {.arena = a}};
    c.sets = DR_NEW_N(a, const char *, argc + 1);
    int code = DR_WRONG_INPUT;
    if (parse(&c, argc, argv)) {
        code = DR_OK;
        if (c.mode == DR_CLI_HELP)
            fputs(help, stdout);
        else if (c.mode == DR_CLI_VERSION)
            printf("dagrun %s\n", DR_VERSION);
        else
            code = dr_cli_mode_run(&c);
    }
    dr_arena_destroy(a);
    if ((fflush(stdout) || ferror(stdout)) && code == DR_OK) { /* a full disk, say */
        dr_cli_error("the results could not be written to stdout");
        code = DR_FAILED;
    }
    return code;
}
