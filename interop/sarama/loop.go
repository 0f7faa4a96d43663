package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

// worker is consume-transform-produce as sarama's example does it: a transaction per few messages, offsets added to it, and an abort
// resets the claim to where the transaction began.
type worker struct {
	lock     sync.Mutex
	producer *producer
	group    string
	sink     string
	// Transactions begun: read by the connections too.
	begun atomic.Int32
	death death
}

// death is a point on a worker's way at which it dies: before a request leaves, after it has left and before its answer is looked at,
// or `none`. The points of a transaction's four requests are every place where the broker can know of a step what the client doesn't.
type death struct {
	when    string
	request int16
	// In which transaction.
	at int
}

// The requests of a transaction, in the order in which they are sent.
var requests = map[string]int16{"AddPartitionsToTxn": 24, "AddOffsetsToTxn": 25, "TxnOffsetCommit": 28, "EndTxn": 26}

// Every point, in order. "record sent" dies with the record in the log and no offset on its way; "done" after the commit was answered.
var loopDeaths = []string{"before AddPartitionsToTxn", "after AddPartitionsToTxn", "record sent", "before AddOffsetsToTxn", "after AddOffsetsToTxn",
	"before TxnOffsetCommit", "after TxnOffsetCommit", "before EndTxn", "after EndTxn", "done"}

func deathOf(words string, at int) death {
	when, name, _ := strings.Cut(words, " ")
	if request, ok := requests[name]; ok {
		return death{when, request, at}
	}
	return death{when: words, at: at}
}

// Dial makes the producer's connections, which know when to die.
func (w *worker) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return &watched{c, w}, err
}

// watched sees the requests of a connection: sarama writes each in one piece.
type watched struct {
	net.Conn
	worker *worker
}

func (c *watched) Write(frame []byte) (int, error) {
	d := c.worker.death
	hit := d.request != 0 && len(frame) >= 6 && int16(binary.BigEndian.Uint16(frame[4:])) == d.request && int(c.worker.begun.Load()) == d.at
	if hit && d.when == "before" {
		die()
	}
	n, err := c.Conn.Write(frame)
	if hit {
		die()
	}
	return n, err
}

func (w *worker) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (w *worker) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (w *worker) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			w.lock.Lock()
			err := w.one(session, m)
			w.lock.Unlock()
			if err != nil {
				return err
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (w *worker) one(session sarama.ConsumerGroupSession, m *sarama.ConsumerMessage) error {
	if session.Context().Err() != nil {
		return nil
	}
	at := int(w.begun.Add(1))
	must(w.producer.BeginTxn(), "begin")
	before := int64(0)
	if at == w.death.at && w.death.when == "record sent" {
		before = end(w.sink)
	}
	w.producer.Input() <- &sarama.ProducerMessage{Topic: w.sink, Key: sarama.StringEncoder(fmt.Sprint(m.Partition)), Value: sarama.StringEncoder("out " + string(m.Value))}
	must(w.producer.AddMessageToTxn(m, w.group, nil), "add the offset")
	if at == w.death.at && w.death.when == "record sent" {
		waitFor(func() bool { return end(w.sink) > before }, "the record is in the log")
		die()
	}
	committed, err := w.producer.finish()
	if at == w.death.at && w.death.when == "done" {
		die()
	}
	if err != nil || !committed {
		session.ResetOffset(m.Topic, m.Partition, m.Offset, "")
		return fmt.Errorf("not committed: %w", err)
	}
	return nil
}

// loop is the body of one worker process: dies in its fifth transaction as it is told, or leaves when all that is expected is out. It is
// a static member, so that the next one needn't wait until the dead one's session is over.
func loop(source, sink, group, id, dies string, expected int) int {
	c := config(sarama.V2_8_0_0)
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Consumer.Group.Session.Timeout = 6 * time.Second
	c.Consumer.Group.InstanceId = "worker"
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	g, err := sarama.NewConsumerGroup(bootstrap, group, c)
	must(err, "a group")
	ctx, leave := context.WithTimeout(context.Background(), 40*time.Second)
	defer leave()
	settings := transactional(id, sarama.V2_8_0_0)
	settings.Producer.Partitioner = sarama.NewHashPartitioner
	w := &worker{group: group, sink: sink, death: deathOf(dies, 5)}
	settings.Net.Proxy.Enable, settings.Net.Proxy.Dialer = true, w
	w.producer = open(settings)
	go func() {
		for ctx.Err() == nil {
			if committedOffsets(source, group) >= int64(expected) {
				leave()
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	for ctx.Err() == nil {
		if err := g.Consume(ctx, []string{source}, w); err != nil {
			fmt.Println("consume:", err)
		}
	}
	g.Close()
	w.producer.Close()
	return 0
}

// committedOffsets is the sum of what the group has committed.
func committedOffsets(topic, group string) int64 {
	admin, err := sarama.NewClusterAdmin(bootstrap, config(sarama.V2_8_0_0))
	must(err, "an admin")
	defer admin.Close()
	answer, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2}})
	must(err, "the group's offsets")
	sum := int64(0)
	for partition := range partitions {
		if block := answer.GetBlock(topic, int32(partition)); block != nil && block.Offset > 0 {
			sum += block.Offset
		}
	}
	return sum
}

func exactlyOnce() {
	source, sink, group, id, n := topic("source", partitions), topic("sink", partitions), fresh("group"), fresh("id"), 300
	c := config(sarama.V2_8_0_0)
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	p, err := sarama.NewSyncProducer(bootstrap, c)
	must(err, "a producer")
	for i := range n {
		_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: source, Value: sarama.StringEncoder(fmt.Sprint(i))})
		must(err, "send")
	}
	p.Close()
	for range count(1, 3) {
		for _, death := range loopDeaths {
			was := committedOffsets(source, group)
			runWorker(source, sink, group, id, death, n, true)
			// It died in its fifth transaction, four before that being in; of the fifth the broker may know more than the client did.
			now := committedOffsets(source, group) - was
			if sure := death != "after EndTxn"; now != 4 && (death == "done") != (now == 5) && (sure || now != 5) {
				panic(fmt.Sprintf("a worker that died %s has committed %d transactions", death, now))
			}
		}
	}
	runWorker(source, sink, group, id, "none", n, false)
	// Order over the partitions of the sink is by key, the partition of the source: each key's values in order, each once.
	found := make([][]string, partitions)
	for partition := range partitions {
		for _, r := range read(sink, int32(partition), true) {
			found[number(r.Key)] = append(found[number(r.Key)], r.Value)
		}
	}
	for partition := range partitions {
		expected := []string{}
		for _, value := range dealt(n, partition) {
			expected = append(expected, "out "+value)
		}
		equal(found[partition], expected, fmt.Sprintf("output of partition %d", partition))
	}
	if at := committedOffsets(source, group); at != int64(n) {
		panic(fmt.Sprintf("the group is at %d of %d", at, n))
	}
}
