/* grid.c - a table of short texts as Markdown, LaTeX and HTML. See compare.h.
 *
 * Texts are UTF-8 with a few marks of ours ("±", "–", "†", arrows); each writer escapes what its
 * language would read as its own.
 */
#include <string.h>

#include "compare/compare.h"

void grid_free(struct grid *g)
{
    for (int i = 0; g->text && i < g->rows * g->columns; i++)
        mem_free(g->text[i]);
    mem_free(g->text);
    mem_free(g->best);
    memset(g, 0, sizeof *g);
}

static const char *at(const struct grid *g, int row, int column)
{
    const char *text = g->text[row * g->columns + column];
    return text ? text : "";
}

static int is_best(const struct grid *g, int row, int column)
{
    return g->best[row * g->columns + column];
}

/* Text with every byte of `special` exchanged by what `words` (same order) has for it. */
static void put_escaped(struct html *h, const char *text, const char *special, const char *const *words)
{
    for (; *text; text++) {
        const char *mark = strchr(special, *text);
        if (mark)
            html_add(h, "%s", words[mark - special]);
        else
            html_add(h, "%c", *text);
    }
}

void grid_markdown(struct html *h, const struct grid *g)
{
    static const char *const words[] = {"\\|", "\\*", "\\_", "&lt;", " "};
    html_add(h, "## %s\n\n", g->title);
    for (int r = 0; r < g->rows; r++) {
        html_add(h, "|");
        for (int c = 0; c < g->columns; c++) {
            const char *bold = is_best(g, r, c) ? "**" : "";
            html_add(h, " %s", bold);
            put_escaped(h, at(g, r, c), "|*_<\n", words);
            html_add(h, "%s |", bold);
        }
        html_add(h, "\n");
        for (int c = 0; r == 0 && c < g->columns; c++)
            html_add(h, "%s---%s|%s", c ? "" : "|", c < g->n_left ? "" : ":", c + 1 < g->columns ? "" : "\n");
    }
    html_add(h, "\n");
}

/* UTF-8 marks that LaTeX has words for; other letters are left to its inputenc. */
static void put_latex(struct html *h, const char *text)
{
    static const char *const words[] = {"\\%",
                                        "\\_",
                                        "\\&",
                                        "\\#",
                                        "\\$",
                                        "\\{",
                                        "\\}",
                                        "\\textasciitilde{}",
                                        "\\textasciicircum{}",
                                        "\\textbackslash{}",
                                        "$<$",
                                        "$>$"};
    static const struct {
        const char *mark, *word;
    } marks[] = {
        {"±", "$\\pm$"},      {"–", "--"},
        {"†", "$\\dagger$"},                          /* of values */
        {"↑", "$\\uparrow$"}, {"↓", "$\\downarrow$"}, /* of heads */
    };
    while (*text) {
        size_t k = 0, n_marks = sizeof marks / sizeof *marks;
        while (k < n_marks && !text_starts_with(text, marks[k].mark))
            k++;
        if (k < n_marks) {
            html_add(h, "%s", marks[k].word);
            text += strlen(marks[k].mark);
            continue;
        }
        char one[2] = {*text++, '\0'};
        put_escaped(h, one, "%_&#${}~^\\<>", words);
    }
}

void grid_latex(struct html *h, const struct grid *g)
{
    html_add(h, "%% %s; needs \\usepackage{booktabs}\n\\begin{tabular}{", g->title);
    for (int c = 0; c < g->columns; c++)
        html_add(h, "%c", c < g->n_left ? 'l' : 'r');
    html_add(h, "}\n\\toprule\n");
    for (int r = 0; r < g->rows; r++) {
        for (int c = 0; c < g->columns; c++) {
            html_add(h, "%s%s", c ? " & " : "", is_best(g, r, c) ? "\\textbf{" : "");
            put_latex(h, at(g, r, c));
            html_add(h, "%s", is_best(g, r, c) ? "}" : "");
        }
        html_add(h, " \\\\\n%s", r == 0 ? "\\midrule\n" : "");
    }
    html_add(h, "\\bottomrule\n\\end{tabular}\n\n");
}

void grid_html(struct html *h, const struct grid *g)
{
    html_add(h, "<div class=\"wide\"><table>\n");
    for (int r = 0; r < g->rows; r++) {
        html_add(h, r == 0 ? "<thead><tr>" : "<tr>");
        for (int c = 0; c < g->columns; c++) {
            const char *tag = r == 0 || c == 0 ? "th" : "td";
            html_add(h, "<%s class=\"%s%s\">", tag, c < g->n_left ? "w" : "n",
                     is_best(g, r, c) ? " best" : "");
            html_text(h, at(g, r, c));
            html_add(h, "</%s>", tag);
        }
        html_add(h, r == 0 ? "</tr></thead>\n<tbody>\n" : "</tr>\n");
    }
    html_add(h, "</tbody></table></div>\n");
}
