#!/bin/bash
# The agent of the tests of a fleet. It writes AGENT_LINES numbered lines in work.txt, each of them with the address of
# its pod, and a commit for each of them. It goes on where the last line ends. While it waits for AGENT_PAUSE seconds,
# the line is not committed. It reports each line that is in the file.
pod=$(hostname -i) # its address: all pods of an index have one host name
touch work.txt
number=$(wc -l < work.txt)
while [ "$number" -lt "$AGENT_LINES" ]; do
    number=$((number + 1))
    echo "$number $pod" >> work.txt
    printf '%s %s %s\n' "$RALPH_AGENT_ID" "$number" "$pod" > "/dev/udp/$AGENT_JOURNAL" 2>/dev/null
    sleep "$AGENT_PAUSE"
    git add work.txt && git commit --quiet --message "line $number"
done
git diff --quiet HEAD -- work.txt 2>/dev/null || { git add work.txt && git commit --quiet --message 'the rest'; }
echo '<promise>COMPLETE</promise>'
