/* The verbs of the command. argv[0] is "llmspeed VERB". Each returns the exit code. */
#ifndef CLI_VERBS_H
#define CLI_VERBS_H

int verb_generate(int argc, char **argv);
int verb_bench(int argc, char **argv);
int verb_bench_op(int argc, char **argv);
int verb_bench_model(int argc, char **argv);
int verb_ladder(int argc, char **argv);
int verb_tune(int argc, char **argv);
int verb_info(int argc, char **argv);
int verb_inspect(int argc, char **argv);
int verb_tokenize(int argc, char **argv);

#endif
