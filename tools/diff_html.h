/* diff_html.h - what the files of the diff's page share. [DIF-10]
 *
 * diff_html.c        the page: verdict, first divergence, maps of layers x stages, figures, notes
 * diff_html_trace.c  decisions: blocks as grids, drafts as rounds
 * diff_html_page.c   its style and script */
#ifndef CLOVER_DIFF_HTML_H
#define CLOVER_DIFF_HTML_H

#include "diff_parts.h"
#include "output.h"

typedef struct Page {
    Buffer out;
    const DiffResult *result;
    const Bundle *bundle;
    const char *dump;                /* NULL: none */
    int64_t room;                    /* decisions that may still be drawn */
} Page;

void html(Page *p, const char *markup);                                   /* as it is */
void html_format(Page *p, const char *format, ...) CLOVER_PRINTF(2, 3);   /* as it is; nothing from a file goes through here */
/* Text from anywhere, in an element or between double quotes: invalid UTF-8 becomes U+FFFD, control characters \n, \x1b. */
void html_text(Page *p, const char *text);
void html_lines(Page *p, const char *text);                          /* the same, but lines stay lines (<pre>) */
void html_number(Page *p, double x, int digits);                          /* NaN and Infinity by name */

/* Every case's decisions. */
void html_traces(Page *p);

extern const char *const diff_html_style[], *const diff_html_script[];   /* lines; NULL ends them */

#endif
