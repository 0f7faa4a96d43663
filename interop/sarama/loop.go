package main

import (
	"context"
	"fmt"
	"sync"
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
	done     int
	dieAt    int
	expected int
	leave    context.CancelFunc
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
	must(w.producer.BeginTxn(), "begin")
	w.producer.Input() <- &sarama.ProducerMessage{Topic: w.sink, Key: sarama.StringEncoder(fmt.Sprint(m.Partition)), Value: sarama.StringEncoder("out " + string(m.Value))}
	must(w.producer.AddMessageToTxn(m, w.group, nil), "add the offset")
	w.done++
	if w.done == w.dieAt {
		// With the record sent and the offsets not, and nothing committed.
		time.Sleep(20 * time.Millisecond)
		die()
	}
	committed, err := w.producer.finish()
	if err != nil || !committed {
		session.ResetOffset(m.Topic, m.Partition, m.Offset, "")
		return fmt.Errorf("not committed: %w", err)
	}
	return nil
}

// loop is the body of one worker process: dies after so many transactions, or leaves when all that is expected is out.
func loop(source, sink, group, id string, dieAt, expected int) int {
	c := config(sarama.V2_8_0_0)
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Consumer.Group.Session.Timeout = 6 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	g, err := sarama.NewConsumerGroup(bootstrap, group, c)
	must(err, "a group")
	ctx, leave := context.WithTimeout(context.Background(), 40*time.Second)
	defer leave()
	settings := transactional(id, sarama.V2_8_0_0)
	settings.Producer.Partitioner = sarama.NewHashPartitioner
	w := &worker{producer: open(settings), group: group, sink: sink, dieAt: dieAt, expected: expected, leave: leave}
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
	for _, dieAt := range []int{7, 40, 1, 0} {
		runWorker(source, sink, group, id, dieAt, n, dieAt != 0)
	}
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
