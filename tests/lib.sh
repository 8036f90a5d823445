# lib.sh - what shell tests expect of messages: the exit code, the catalogue id and one fact (see fact.h).
# The test defines `wrong`, which counts a failure, before it sources this file.

# A fact is a name, a number, an option: no two plain words in a row, at most 60 bytes. Empty: the id is enough.
fact() {
    { [ ${#1} -le 60 ] && ! grep -qE '(^| )[a-z]+[,.:;?]? [a-z]+[,.:;?]?( |$)' <<<"$1"; } || wrong "\"$1\" is wording, expected a fact"
}

same() { cmp -s "$1" "$2" || wrong "$1 and $2 differ"; } # two files

says() { # says FACT FILE...: one of the files holds the fact
    local fact=$1
    shift
    fact "$fact"
    grep -qF -- "$fact" "$@" || wrong "no \"$fact\" in $*: $(tail -qn 1 "$@")"
}

# fails EXIT ID FACT COMMAND...: this exit code; stderr holds the fact and its last line ends in [ID] (ID "" where
# the catalogue has none)
fails() {
    local want=$1 id=$2 fact=$3 code=0
    shift 3
    "$@" >out 2>err || code=$?
    [ $code = "$want" ] || wrong "exit $code, expected $want: $* ($(tail -1 err))"
    [ -z "$id" ] || tail -1 err | grep -q "\[$id\]\$" || wrong "not [$id]: $* ($(tail -1 err))"
    says "$fact" err
}

refused() { # refused EXIT ID FACT COMMAND...: fails with one line
    fails "$@"
    [ "$(wc -l <err)" = 1 ] || wrong "$(wc -l <err) lines: $*"
}

succeeds() { # succeeds FACT COMMAND...: exit code 0, and stdout or stderr holds the fact
    local fact=$1 code=0
    shift
    "$@" >out 2>err || code=$?
    [ $code = 0 ] || wrong "exit $code, expected 0: $* ($(tail -1 err))"
    says "$fact" err out
}
