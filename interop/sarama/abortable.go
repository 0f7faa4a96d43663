package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// commitOne runs a transaction of one record that must commit.
func (p *producer) commitOne(topic, value string) {
	must(p.BeginTxn(), "begin")
	p.send(topic, value)
	committed, err := p.finish()
	must(err, "commit "+value)
	if !committed {
		panic(fmt.Sprintf("%s was aborted: %v", value, p.errors))
	}
}

// abortable provokes three errors that the protocol calls abortable, by three requests: each must take the abortable branch of `finish`, once,
// and the next transaction of the same producer must commit.
func abortable() {
	for _, version := range []sarama.KafkaVersion{sarama.V2_8_0_0, sarama.V4_0_0_0} {
		t, few := topic("abortable", 1), "1000"
		small := topicWith("small", 1, map[string]*string{"max.message.bytes": &few})
		c := transactional(fresh("id"), version)
		// A topic that is gone is looked for as often as sarama does by itself, and never made anew.
		c.Metadata.Retry.Max, c.Metadata.AllowAutoTopicCreation = 3, false
		p := open(c)
		aborts := func(what string, provoke func()) {
			taken := p.abortable
			must(p.BeginTxn(), "begin")
			p.send(t, "lost: "+what)
			provoke()
			committed, err := p.finish()
			must(err, what)
			if committed || p.abortable != taken+1 {
				panic(fmt.Sprintf("%s: committed %v, %d times abortable, errors %v", what, committed, p.abortable-taken, p.errors))
			}
		}
		p.commitOne(t, "first")
		aborts("too large", func() { p.send(small, strings.Repeat("x", 5_000)) })
		p.commitOne(t, "second")
		aborts("deleted", func() {
			doomed := topic("doomed", 1)
			p.send(doomed, "there")
			waitFor(func() bool { return newest(doomed) > 0 }, "the record is in the log")
			admin, err := sarama.NewClusterAdmin(bootstrap, config(sarama.V2_8_0_0))
			must(err, "an admin")
			defer admin.Close()
			must(admin.DeleteTopic(doomed), "delete")
			waitFor(func() bool {
				topics, err := admin.ListTopics()
				_, there := topics[doomed]
				return err == nil && !there
			}, "the topic is gone")
			p.send(doomed, "late")
		})
		p.commitOne(t, "third")
		aborts("no member", func() {
			member := sarama.NewConsumerGroupMetadata(fresh("group"))
			member.MemberID, member.GenerationID = "nobody", 7
			offsets := map[string][]*sarama.PartitionOffsetMetadata{t: {{Partition: 0, Offset: 1}}}
			must(p.AddOffsetsToTxnWithGroupMetadata(offsets, member), "add offsets")
		})
		p.commitOne(t, "fourth")
		if p.abortable != 3 || p.fatal != 0 {
			panic(fmt.Sprintf("%d abortable, %d fatal", p.abortable, p.fatal))
		}
		must(p.Close(), "close")
		equal(values(t, 0, true), []string{"first", "second", "third", "fourth"}, "read_committed as "+version.String())
		// The last one's record was in the log before its offsets were refused: it is the abort that hides it.
		if all := values(t, 0, false); !strings.Contains(strings.Join(all, ","), "third,lost: no member,fourth") {
			panic(fmt.Sprintf("read_uncommitted: %v", all))
		}
	}
}

// timedOut: to a client of the older protocol a transaction that its broker has aborted looks like a newer producer.
func timedOut() {
	t, id := topic("timed-out", 1), fresh("id")
	c := transactional(id, sarama.V2_8_0_0)
	c.Producer.Transaction.Timeout = time.Second
	p := open(c)
	p.commitOne(t, "first")
	must(p.BeginTxn(), "begin")
	p.send(t, "too slow")
	waitFor(func() bool { return newest(t) == 4 }, "the broker has aborted it: two records, two markers")
	committed, err := p.finish()
	if committed || !errors.Is(err, errFatal) || p.fatal != 1 || p.abortable != 0 {
		panic(fmt.Sprintf("committed %v, %v", committed, err))
	}
	p.Close()
	p = open(c)
	p.commitOne(t, "second")
	must(p.Close(), "close")
	equal(values(t, 0, true), []string{"first", "second"}, "read_committed")
}
