#!/bin/bash
# The agent of the tests of a fleet. It writes AGENT_LINES numbered lines in work.txt, each of them with the address of
# its pod, and a commit for each of them. It goes on where the last line ends. While it waits for AGENT_PAUSE seconds,
# the line is not committed. It reports each line that is in the file.
#
# AGENT_HOLD=N: it waits at line N until the gate of the tests accepts a connection.
# AGENT_EATS=N: once in a pod, it needs too much memory at line N.
# AGENT_FILLS=N: it fills the disk of its pod at line N, and waits for what follows.
pod=$(hostname -i) # its address: all pods of an index have one host name
touch work.txt
number=$(wc -l < work.txt)

pass_the_gate() {
    until timeout 2 bash -c "exec 3<>/dev/tcp/$AGENT_GATE" 2>/dev/null; do sleep 0.5; done
}

while [ "$number" -lt "$AGENT_LINES" ]; do
    number=$((number + 1))
    echo "$number $pod" >> work.txt
    printf '%s %s %s\n' "$RALPH_AGENT_ID" "$number" "$pod" > "/dev/udp/$AGENT_JOURNAL" 2>/dev/null
    sleep "$AGENT_PAUSE"
    [ "$number" != "${AGENT_HOLD:-}" ] || pass_the_gate
    [ "$number" != "${AGENT_FILLS:-}" ] || { head -c 200M /dev/zero > "$TMPDIR/filled" && sleep 1000; }
    if [ "$number" = "${AGENT_EATS:-}" ] && [ ! -e "$HOME/eaten" ]; then
        touch "$HOME/eaten"
        exec python3 -c 'b"x" * (1 << 30)'
    fi
    git add work.txt && git commit --quiet --message "line $number"
done
git diff --quiet HEAD -- work.txt 2>/dev/null || { git add work.txt && git commit --quiet --message 'the rest'; }
echo '<promise>COMPLETE</promise>'
