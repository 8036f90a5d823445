/* fuzz_config.c - any bytes as a config file, and as a command line.
 *
 * The first byte chooses the verb (low bits) and the way in (top bit): the rest is the text of a
 * config file, or words of a command line split at line ends. Whatever is accepted must print as a
 * config file that reads back as the same config.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { WORDS_MAX = 64 };

static char *printed(const struct config *c)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        abort();
    config_print(c, f);
    fclose(f);
    return text;
}

static void must_read_back(const struct config *c)
{
    struct config back = {.verb = c->verb};
    struct error e;
    char *once = printed(c);
    if (config_apply_text(&back, once, "printed", &e) < 0)
        abort();
    char *twice = printed(&back);
    if (strcmp(once, twice) != 0)
        abort();
    free(once);
    free(twice);
    config_free(&back);
}

/* An error is one printable line with the exit code of a bad configuration. */
static void must_be_an_error(const struct error *e)
{
    if (e->code != ERR_CONFIG || !*e->text || !*e->id)
        abort();
    for (const char *s = e->text; *s; s++)
        if ((unsigned char)*s < 0x20)
            abort();
}

static void try_file(enum verb verb, const char *text)
{
    char *argv[] = {(char[]){"falx"}, (char[]){"--print-config"}, NULL};
    struct error e = {.code = ERR_NONE};
    struct config c;
    if (config_parse(&c, verb, 2, argv, &e) < 0)
        abort();
    if (config_apply_text(&c, text, "fuzz.cfg", &e) == 0)
        must_read_back(&c);
    else
        must_be_an_error(&e);
    config_free(&c);
}

static void try_words(enum verb verb, char *text)
{
    char *argv[WORDS_MAX + 1] = {(char[]){"falx"}};
    int argc = 1;
    if (strstr(text, "config"))
        return; /* would read files of this machine */
    for (char *word = text; word && argc < WORDS_MAX;) {
        char *next = strchr(word, '\n');
        if (next)
            *next++ = '\0';
        argv[argc++] = word;
        word = next;
    }
    struct error e = {.code = ERR_NONE};
    struct config c;
    if (config_parse(&c, verb, argc, argv, &e) < 0) {
        must_be_an_error(&e);
        return;
    }
    if (!c.help)
        must_read_back(&c);
    config_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0 || n > 1 << 16)
        return 0;
    enum verb verb = (enum verb)((bytes[0] & 0x7F) % VERB_COUNT);
    char *text = malloc(n);
    if (!text)
        return 0;
    memcpy(text, bytes + 1, n - 1);
    text[n - 1] = '\0';
    if (bytes[0] & 0x80)
        try_words(verb, text);
    else
        try_file(verb, text);
    free(text);
    return 0;
}
