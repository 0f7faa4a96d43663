package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

// The steps a producer can die after. Each names what has happened by then.
var deaths = []string{"opened", "begun", "queued", "one sent", "all sent", "committing", "committed", "begun again", "aborting", "aborted"}

// die is kill -9 of ourselves: no deferred call, no goodbye to the broker.
func die() {
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	time.Sleep(time.Minute)
}

// victim produces transaction n of 4 records (values n/0..n/3) and dies after the step named; with the step "none" it commits and leaves.
// Arguments: topic, transactional id, n, step. It prints `committed` once it knows.
func victim(arguments []string) int {
	t, id, n, death := arguments[0], arguments[1], number(arguments[2]), arguments[3]
	at := func(step string) {
		if step == death {
			die()
		}
	}
	p := open(transactional(id, sarama.V2_8_0_0))
	at("opened")
	must(p.BeginTxn(), "begin")
	at("begun")
	values := []string{}
	for i := range 4 {
		values = append(values, fmt.Sprintf("%d/%d", n, i))
	}
	sentBefore := end(t)
	p.send(t, values[0])
	at("queued")
	waitFor(func() bool { return end(t) > sentBefore }, "the first is in the log")
	at("one sent")
	for _, value := range values[1:] {
		p.send(t, value)
	}
	waitFor(func() bool { return end(t) >= sentBefore+4 }, "all are in the log")
	at("all sent")
	switch death {
	case "committing":
		// Some die before the request has left, some after it was answered.
		go func() { time.Sleep(time.Duration(n%7) * 300 * time.Microsecond); die() }()
	case "aborting":
		go func() { time.Sleep(time.Duration(n%7) * 300 * time.Microsecond); die() }()
		p.abort()
		die()
	case "aborted":
		must(p.abort(), "abort")
		die()
	}
	ok, err := p.finish()
	must(err, "commit")
	if !ok {
		panic("aborted")
	}
	fmt.Println("committed")
	os.Stdout.Sync()
	at("committing") // The answer was faster.
	at("committed")
	must(p.BeginTxn(), "begin")
	p.send(t, "after/"+values[0])
	at("begun again")
	must(p.abort(), "abort")
	must(p.Close(), "close")
	return 0
}

// end is the sum of the ends of all partitions.
func end(topic string) int64 {
	client, err := sarama.NewClient(bootstrap, config(sarama.V2_8_0_0))
	must(err, "a client")
	defer client.Close()
	sum := int64(0)
	for partition := range partitions {
		end, err := client.GetOffset(topic, int32(partition), sarama.OffsetNewest)
		must(err, "the end")
		sum += end
	}
	return sum
}

func contains(topic string, values []string) bool {
	found := 0
	for partition := range partitions {
		for _, value := range valuesOf(topic, partition) {
			if slices.Contains(values, value) {
				found++
			}
		}
	}
	if found != 0 && found != len(values) {
		panic(fmt.Sprintf("torn: %d of %d values of a transaction are there: %v", found, len(values), values))
	}
	return found > 0
}

func valuesOf(topic string, partition int) []string { return values(topic, int32(partition), true) }

func sorted(values []string) []string {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted
}

// runWorker runs loop in a process of its own, which must die by its own hand or must not.
func runWorker(source, sink, group, id, death string, expected int, dies bool) {
	self, err := os.Executable()
	must(err, "our own name")
	said, err := exec.Command(self, "loop", source, sink, group, id, death, fmt.Sprint(expected)).CombinedOutput()
	var exit *exec.ExitError
	killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled()
	if dies != killed || (err != nil) != killed {
		panic(fmt.Sprintf("a worker that should die %s: %v: %s", death, err, said))
	}
}

// steps: for each step a victim dies there, then its successor under the same id must get in at once and find the truth by reading: the
// victim's transaction is wholly there or wholly not, and it is there if the victim said so. Then the successor does it again if needed.
func steps() {
	t, id := topic("steps", partitions), fresh("id")
	self, err := os.Executable()
	must(err, "our own name")
	expected := []string{}
	for n := range count(2, 10) * len(deaths) {
		death := deaths[n%len(deaths)]
		said, err := exec.Command(self, "victim", t, id, fmt.Sprint(n), death).CombinedOutput()
		if err == nil {
			panic("the victim of " + death + " did not die: " + string(said))
		}
		if state := err.(*exec.ExitError).Sys().(syscall.WaitStatus); !state.Signaled() {
			panic("the victim of '" + death + "' ended by itself: " + string(said))
		}
		mine := []string{}
		for i := range 4 {
			mine = append(mine, fmt.Sprintf("%d/%d", n, i))
		}
		expected = append(expected, mine...)
		// The successor: its start ends what the victim left open, so that reading up to the end works.
		p := open(transactional(id, sarama.V2_8_0_0))
		must(p.Close(), "close")
		if there := contains(t, mine); !there {
			if strings.Contains(string(said), "committed") {
				panic("lost: the victim of '" + death + "' had committed")
			}
			said, err := exec.Command(self, "victim", t, id, fmt.Sprint(n), "none").CombinedOutput()
			must(err, "the successor: "+string(said))
		} else if slices.Contains([]string{"opened", "begun", "queued", "one sent", "all sent", "aborting", "aborted"}, death) {
			panic("there although the victim of '" + death + "' never committed")
		}
	}
	found := []string{}
	for partition := range partitions {
		found = append(found, values(t, int32(partition), true)...)
	}
	equal(sorted(found), sorted(expected), "all values, over all partitions")
}
