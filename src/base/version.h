/* version.h - of the program, the library and what they write. */
#ifndef FALX_VERSION_H
#define FALX_VERSION_H

#define FALX_VERSION "0.2.0"

#endif
