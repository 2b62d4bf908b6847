/* tools.h - the commands. Each takes its own argv (argv[0] is the command's name) and returns the exit code. */
#ifndef CLOVER_TOOLS_H
#define CLOVER_TOOLS_H

int cmd_run(int argc, char **argv);
int cmd_logits(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_lint(int argc, char **argv);
int cmd_golden(int argc, char **argv);
int cmd_synth(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_hypotheses(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_fix(int argc, char **argv);
int cmd_ask(int argc, char **argv);

#endif
