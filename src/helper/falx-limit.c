/* falx-limit.c - becomes another program, under limits.
 *
 *     falx-limit WORD PROGRAM [ARGUMENT...]
 *
 * WORD holds the limits as child_limits_format() writes them. They are set on this process first,
 * files other than the three standard ones are closed, and the death of the parent is made to end
 * us too; all of that survives the exec. Exit status 126: limits could not be set; 127: no such
 * program.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/child.h"

int main(int argc, char **argv)
{
    if (argc < 3)
        return 126;
    close_range(3, ~0U, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || child_limits_apply(argv[1]) < 0)
        return 126;
    execvp(argv[2], argv + 2);
    return CHILD_NOT_FOUND;
}
