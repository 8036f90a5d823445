/* fact.h - what a test may expect of a message besides its catalogue id: a fact, never a sentence.
 *
 * A fact is what the message exists for: a file, a case, an option, a number, a type, dims. Wording is free
 * to improve, so a text with two plain words in a row ("not there") or over 40 bytes is no fact: "4x3x2",
 * "--batch", "labels/b.nii", "255" and "spacing[2]=nan" are.
 */
#ifndef FALX_FACT_H
#define FALX_FACT_H

#include <string.h>

enum { FACT_BYTES_MAX = 40 };

/* Only lower-case letters, and punctuation at the end; not the x of "4 x 3". */
static inline int fact_plain_word(const char *s)
{
    size_t letters = strspn(s, "abcdefghijklmnopqrstuvwxyz"), all = strcspn(s, " ");
    return letters && letters + strspn(s + letters, ",.:;?") == all && !(all == 1 && *s == 'x');
}

static inline int is_fact(const char *text)
{
    int plain = 0;
    for (const char *word = text; *word; word += strspn(word, " ")) {
        plain = fact_plain_word(word) ? plain + 1 : 0;
        if (plain == 2)
            return 0;
        word += strcspn(word, " ");
    }
    return strlen(text) <= FACT_BYTES_MAX;
}

#endif
