/* letters.h - a small built-in typeface for captions: capitals, digits, some marks; 5 x 7 dots. */
#ifndef FALX_LETTERS_H
#define FALX_LETTERS_H

#include "score/picture.h"

enum { LETTER_WIDTH = 6, LETTER_HEIGHT = 7 }; /* with one column of space */

/* Draws text with its upper left corner at (x, y), each dot `dot` pixels wide; small letters appear
 * as capitals, unknown characters as blanks, and what does not fit is cut. */
void letters_draw(struct picture *p, int x, int y, int dot, const uint8_t rgb[3], const char *text);
int letters_width(const char *text, int dot);

#endif
