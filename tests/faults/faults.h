/* faults.h - the harness of the fault catalogue.
 *
 * One function per catalogue id builds the bad input in a scratch folder and says what must happen. The
 * runner (faults.c) runs every id, prints one line each, and fails if an id of the catalogue has no test.
 */
#ifndef FALX_FAULTS_H
#define FALX_FAULTS_H

#include <stddef.h>
#include <stdint.h>

struct fault {
    const char *id;
    const char *about; /* a few words for the printed line */
    void (*test)(void);
};
/* One table per file, ended by {NULL}. */
extern const struct fault faults_nifti[], faults_gzip[], faults_nrrd[], faults_hdf5[], faults_dicom[],
    faults_config[], faults_layout[], faults_safetensors[];

/* ---- inside a test: the scratch folder is the working directory, empty at the start ---- */

/* Runs build/falx with the words given (NULL-terminated) and records exit code, stderr, stdout, wall
 * time and peak memory. Before and after, the scratch folder is hashed. */
void run(const char *first, ...);
/* After run(): the contract of a refusal. Exit code as given, exactly one stderr line of <= 400 printable
 * bytes starting "falx: error: ", containing `path` and `fact` (fact.h; "" for none) and ending in "[id]"
 * of the running test; nothing created or changed; <= 100 ms and <= 64 MiB above baseline. */
void expect_refusal(int exit_code, const char *path, const char *fact);
/* Same, but time and memory are not judged (refusals that need the voxels). */
void expect_refusal_slow(int exit_code, const char *path, const char *fact);
/* Exit 0 and, if `fact` is not NULL, exactly one stderr line "falx: warning: " containing it and ending in
 * "[id]"; if NULL, empty stderr. */
void expect_accepted(const char *fact);
/* The warning of another id, or of none (NULL). */
void expect_warning(const char *id, const char *fact);
/* stderr of the last run contains the fact. */
void expect_fact(const char *fact);
/* stdout of the last run contains the fact. */
void expect_output(const char *text);
/* Any other condition. */
#define expect(cond) expect_that((cond), #cond, __FILE__, __LINE__)
void expect_that(int ok, const char *text, const char *file, int line);
const char *last_stdout(void);
const char *last_stderr(void);
int last_exit(void);

/* ---- making files ---- */
void put_file(const char *name, const void *bytes, size_t n);
void put_text(const char *name, const char *text);
void put_folder(const char *name); /* with parents */
void put_gzip(const char *name, const void *bytes, size_t n);

/* A sound NIfTI-1 image to be damaged: 348-byte header + 4 + voxels, int16 4x3x2, spacing 1x2x3, sform.
 * The bytes may be poked at will before nifti_put(). */
struct nifti1 {
    unsigned char byte[1 << 16];
    size_t n;
};
void nifti_good(struct nifti1 *f);
void nifti_good_label(struct nifti1 *f); /* uint8 4x3x2 with values 0, 1 on the same grid */
void set_i16(struct nifti1 *f, size_t offset, int16_t v);
void set_i32(struct nifti1 *f, size_t offset, int32_t v);
void set_f32(struct nifti1 *f, size_t offset, float v);
void nifti_put(const char *name, const struct nifti1 *f);
void nifti_put_gz(const char *name, const struct nifti1 *f);
/* Skip the running test with a reason (prints "skipped"). */
void skip(const char *reason);

#endif
