package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// transactional is the set-up this directory is about.
func transactional(id string, version sarama.KafkaVersion) *sarama.Config {
	c := config(version)
	c.Producer.Idempotent = true
	c.Producer.Return.Errors = true
	c.Producer.Return.Successes = false
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	c.Producer.Transaction.ID = id
	c.Producer.Transaction.Retry.Backoff = 10 * time.Millisecond
	c.Net.MaxOpenRequests = 1
	return c
}

type producer struct {
	sarama.AsyncProducer
	// Commits and aborts that had to be tried again.
	retries int
	// How often each branch of `finish` was taken.
	abortable, fatal int
	lock             sync.Mutex
	errors           []error
}

func open(c *sarama.Config) *producer {
	p, err := sarama.NewAsyncProducer(bootstrap, c)
	must(err, "a producer (its InitProducerId)")
	made := &producer{AsyncProducer: p}
	// Both are to be read all the time: a commit waits until they are.
	go func() {
		for range p.Successes() {
		}
	}()
	go func() {
		for err := range p.Errors() {
			made.lock.Lock()
			made.errors = append(made.errors, err)
			made.lock.Unlock()
		}
	}()
	return made
}

var errFatal = errors.New("fatal: a new producer is needed")

// finish commits as the documentation of sarama shows it: fatal ends the producer, abortable aborts, anything else tries again.
// True: committed. False: aborted.
func (p *producer) finish() (bool, error) {
	for tries := 0; ; tries++ {
		err := p.CommitTxn()
		if err == nil {
			return true, nil
		}
		p.retries++
		if p.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0 {
			p.fatal++
			return false, fmt.Errorf("%w: %v", errFatal, err)
		}
		if p.TxnStatus()&sarama.ProducerTxnFlagAbortableError != 0 {
			p.abortable++
			return false, p.abort()
		}
		if tries > 100 {
			return false, fmt.Errorf("no commit after 100 tries: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *producer) abort() error {
	for tries := 0; ; tries++ {
		err := p.AbortTxn()
		if err == nil {
			return nil
		}
		p.retries++
		if p.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0 {
			p.fatal++
			return fmt.Errorf("%w: %v", errFatal, err)
		}
		if tries > 100 {
			return fmt.Errorf("no abort after 100 tries: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *producer) send(topic string, value string) {
	p.Input() <- &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)}
}

// dealt are the values 0..n as round robin deals them to a partition.
func dealt(n int, partition int) []string {
	mine := []string{}
	for i := partition; i < n; i += partitions {
		mine = append(mine, fmt.Sprint(i))
	}
	return mine
}

func many() {
	n, t := count(2_000, 10_000), topic("many", partitions)
	p := open(transactional(fresh("id"), sarama.V2_8_0_0))
	for i := range n {
		must(p.BeginTxn(), "begin")
		p.send(t, fmt.Sprint(i))
		committed, err := p.finish()
		must(err, fmt.Sprintf("transaction %d", i))
		if !committed || p.retries > 0 || len(p.errors) > 0 {
			panic(fmt.Sprintf("transaction %d: committed %v, %d retries, errors %v", i, committed, p.retries, p.errors))
		}
	}
	must(p.Close(), "close")
	for partition := range partitions {
		found := read(t, int32(partition), true)
		expected := []record{}
		for at, value := range dealt(n, partition) {
			// Each is followed by its marker.
			expected = append(expected, record{int64(2 * at), "", value})
		}
		equal(found, expected, fmt.Sprintf("partition %d", partition))
	}
}

func aborts() {
	for _, version := range []sarama.KafkaVersion{sarama.V2_1_0_0, sarama.V2_8_0_0, sarama.V4_0_0_0} {
		t := topic("aborts", partitions)
		p := open(transactional(fresh("id"), version))
		all, committed := make([][]string, partitions), make([][]string, partitions)
		at := 0
		for n := range 30 {
			must(p.BeginTxn(), "begin")
			for range 4 {
				value := fmt.Sprint(at)
				p.send(t, value)
				all[at%partitions] = append(all[at%partitions], value)
				if n%3 != 1 {
					committed[at%partitions] = append(committed[at%partitions], value)
				}
				at++
			}
			if n%3 == 1 {
				must(p.abort(), "abort")
			} else if ok, err := p.finish(); err != nil || !ok {
				panic(fmt.Sprintf("transaction %d: %v %v, errors %v", n, ok, err, p.errors))
			}
			// Nothing in it: must go through too.
			must(p.BeginTxn(), "begin")
			must(p.CommitTxn(), "commit of nothing")
		}
		must(p.Close(), "close")
		for partition := range partitions {
			equal(values(t, int32(partition), true), committed[partition], fmt.Sprintf("read_committed %d as %s", partition, version))
			// An abort drops what sarama hasn't sent yet, so of the aborted ones only those that were sent are in the log.
			there := values(t, int32(partition), false)
			next := 0
			for _, value := range there {
				for next < len(all[partition]) && all[partition][next] != value {
					next++
				}
				if next == len(all[partition]) {
					panic(fmt.Sprintf("read_uncommitted %d as %s shows %s out of order", partition, version, value))
				}
				next++
			}
			if len(there) < len(committed[partition]) {
				panic("read_uncommitted shows less than read_committed")
			}
		}
	}
}

func zombie() {
	t, id := topic("zombie", 1), fresh("id")
	first := open(transactional(id, sarama.V2_8_0_0))
	must(first.BeginTxn(), "begin")
	first.send(t, "committed by the first")
	ok, err := first.finish()
	must(err, "the first one's transaction")
	if !ok {
		panic("the first could not commit")
	}
	must(first.BeginTxn(), "begin")
	first.send(t, "left open")
	waitFor(func() bool { return newest(t) == 3 }, "the open transaction's record is in the log")
	second := open(transactional(id, sarama.V2_8_0_0))
	must(second.BeginTxn(), "begin")
	second.send(t, "of the second")
	ok, err = second.finish()
	must(err, "the second one's transaction")
	if !ok {
		panic("the second could not commit")
	}
	// The first wakes up.
	first.send(t, "late")
	ok, err = first.finish()
	if ok || !errors.Is(err, errFatal) || first.fatal != 1 {
		panic(fmt.Sprintf("the zombie: committed %v, %v; it should end with a fatal error, and %d did", ok, err, first.fatal))
	}
	must(second.BeginTxn(), "begin")
	second.send(t, "again")
	ok, err = second.finish()
	must(err, "the second goes on")
	if !ok {
		panic("the second could not go on")
	}
	second.Close()
	first.Close()
	equal(values(t, 0, true), []string{"committed by the first", "of the second", "again"}, "read_committed")
}

// newest is the end of partition 0.
func newest(topic string) int64 {
	client, err := sarama.NewClient(bootstrap, config(sarama.V2_8_0_0))
	must(err, "a client")
	defer client.Close()
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	must(err, "the end")
	return end
}

func waitFor(condition func() bool, what string) {
	for until := time.Now().Add(20 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			panic("never: " + what)
		}
	}
}

// brokerInTransactions: a commit whose answer was lost is unknown to the client, which tries again; what it says in the end must hold.
func brokerInTransactions() {
	t := topic("shaken", partitions)
	expected := make([][]string, partitions)
	at, id := 0, fresh("id")
	p := open(transactional(id, sarama.V2_8_0_0))
	for n := range 40 {
		values := []string{}
		for again := 0; ; again++ {
			if again > 20 {
				panic(fmt.Sprintf("transaction %d: no success in 20 tries", n))
			}
			must(p.BeginTxn(), "begin")
			values = values[:0]
			for range partitions {
				values = append(values, fmt.Sprintf("%d/%d", n, at))
				p.send(t, values[len(values)-1])
				at++
			}
			if n%10 == 5 && again == 0 {
				broker("restart")
			}
			if n%10 == 8 && again == 0 {
				go broker("restart")
			}
			committed, err := p.finish()
			if err != nil {
				p.Close()
				time.Sleep(200 * time.Millisecond)
				p = open(transactional(id, sarama.V2_8_0_0))
				// Is it in? A program that must know reads: here every value carries its transaction.
				committed = contains(t, values)
			}
			if committed {
				break
			}
		}
		for _, value := range values {
			expected[0] = append(expected[0], value)
		}
	}
	must(p.Close(), "close")
	found := []string{}
	for partition := range partitions {
		found = append(found, values(t, int32(partition), true)...)
	}
	equal(sorted(found), sorted(expected[0]), "all values, over all partitions")
}
