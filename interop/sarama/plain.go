package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

func codecs() {
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD} {
		t := topic("codec", 1)
		c := config(sarama.V2_8_0_0)
		c.Producer.Return.Successes = true
		c.Producer.Compression = codec
		p, err := sarama.NewSyncProducer(bootstrap, c)
		must(err, "a producer")
		messages, expected := []*sarama.ProducerMessage{}, []record{}
		for i := range 300 {
			key, value := fmt.Sprintf("key-%d", i%7), strings.Repeat(fmt.Sprintf("value %06d ", i), 20)
			messages = append(messages, &sarama.ProducerMessage{Topic: t, Key: sarama.StringEncoder(key), Value: sarama.StringEncoder(value),
				Headers: []sarama.RecordHeader{{Key: []byte("same"), Value: []byte("1")}, {Key: []byte("same"), Value: []byte("2")}}})
			expected = append(expected, record{int64(i), key, value})
		}
		must(p.SendMessages(messages), "send")
		p.Close()
		for i, m := range messages {
			if m.Offset != int64(i) {
				panic(fmt.Sprintf("record %d was reported at %d", i, m.Offset))
			}
		}
		equal(read(t, 0, true), expected, "under "+codec.String())
		// What `read` wrote behind it all isn't compressed.
		if there := stored(t, 0); there[0] != codec.String() || len(there) > 2 {
			panic(fmt.Sprintf("what was sent under %s is stored under %v", codec, there))
		}
	}
}

// versions: Produce 3 to the newest that sarama has, as its users' settings choose them. Older ones send message sets, which no broker of
// Kafka 4 takes either: what must not happen is that such a producer waits for ever, or believes that something was written.
func versions() {
	for _, version := range []sarama.KafkaVersion{sarama.V0_11_0_0, sarama.V1_0_0_0, sarama.V2_0_0_0, sarama.V2_1_0_0, sarama.V2_8_0_0, sarama.V4_0_0_0} {
		t, expected := topic("version", 1), []record{}
		c := config(version)
		c.Producer.Return.Successes, c.Producer.Compression = true, sarama.CompressionLZ4
		p, err := sarama.NewSyncProducer(bootstrap, c)
		must(err, "a producer as "+version.String())
		for i := range 20 {
			value := strings.Repeat(fmt.Sprintf("value %06d ", i), 20)
			_, at, err := p.SendMessage(&sarama.ProducerMessage{Topic: t, Value: sarama.StringEncoder(value)})
			must(err, "send as "+version.String())
			expected = append(expected, record{at, "", value})
		}
		p.Close()
		equal(stored(t, 0), []string{"lz4"}, "codecs stored as "+version.String())
		equal(read(t, 0, true), expected, "as "+version.String())
	}
	for _, version := range []sarama.KafkaVersion{sarama.V0_8_2_0, sarama.V0_9_0_0, sarama.V0_10_2_0} {
		t := topic("version", 1)
		c := config(version)
		c.Producer.Return.Successes, c.ApiVersionsRequest = true, false
		c.Metadata.Retry.Max, c.Producer.Retry.Max, c.Net.ReadTimeout = 1, 1, 5*time.Second
		began := time.Now()
		p, err := sarama.NewSyncProducer(bootstrap, c)
		if err == nil {
			_, _, err = p.SendMessage(&sarama.ProducerMessage{Topic: t, Value: sarama.StringEncoder("a message set")})
			p.Close()
		}
		if took := time.Since(began); err == nil || took > 10*time.Second {
			panic(fmt.Sprintf("as %s: %v after %s", version, err, took))
		}
		equal(values(t, 0, false), []string{}, "what a producer as "+version.String()+" has written")
	}
}

func killedBroker() {
	t := topic("killed", partitions)
	c := config(sarama.V2_8_0_0)
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Retry.Max = 200
	c.Producer.Retry.Backoff = 50 * time.Millisecond
	c.Producer.Flush.MaxMessages = 20
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Net.MaxOpenRequests = 1
	p, err := sarama.NewAsyncProducer(bootstrap, c)
	must(err, "a producer")
	const n = 6_000
	acknowledged := make([][]record, partitions)
	var reports, kills sync.WaitGroup
	reports.Add(1)
	problem := ""
	go func() {
		defer reports.Done()
		for range n {
			select {
			case m := <-p.Successes():
				value, _ := m.Value.Encode()
				acknowledged[m.Partition] = append(acknowledged[m.Partition], record{m.Offset, "", string(value)})
			case err := <-p.Errors():
				problem = err.Error()
			case <-time.After(60 * time.Second):
				problem = "no report for a minute"
				return
			}
		}
	}()
	for i := range n {
		p.Input() <- &sarama.ProducerMessage{Topic: t, Partition: int32(i % partitions), Value: sarama.StringEncoder(fmt.Sprint(i))}
		if i == n/3 || i == 2*n/3 {
			kills.Add(1)
			go func() { defer kills.Done(); broker("restart") }()
		}
		if i%50 == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	reports.Wait()
	kills.Wait()
	if problem != "" {
		panic("not delivered: " + problem)
	}
	p.Close()
	for partition := range partitions {
		found := read(t, int32(partition), true)
		there := []string{}
		for _, r := range found {
			there = append(there, r.Value)
		}
		equal(there, dealt(n, partition), fmt.Sprintf("partition %d", partition))
		slices.SortFunc(acknowledged[partition], func(a, b record) int { return int(a.Offset - b.Offset) })
		equal(acknowledged[partition], found, fmt.Sprintf("acknowledged offsets of partition %d", partition))
	}
}

// taker collects a group's records and leaves after so many.
type taker struct {
	lock  sync.Mutex
	taken map[int32][]string
	count int
	most  int
	leave context.CancelFunc
}

func (t *taker) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (t *taker) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (t *taker) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			t.lock.Lock()
			if t.count < t.most {
				t.count++
				t.taken[m.Partition] = append(t.taken[m.Partition], string(m.Value))
				session.MarkMessage(m, "")
				if t.count == t.most {
					session.Commit()
					t.leave()
				}
			}
			t.lock.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}

func group() {
	t, name, n := topic("group", partitions), fresh("group"), 900
	c := config(sarama.V2_8_0_0)
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	p, err := sarama.NewSyncProducer(bootstrap, c)
	must(err, "a producer")
	messages := []*sarama.ProducerMessage{}
	for i := range n {
		messages = append(messages, &sarama.ProducerMessage{Topic: t, Value: sarama.StringEncoder(fmt.Sprint(i))})
	}
	must(p.SendMessages(messages), "send")
	p.Close()
	taken := map[int32][]string{}
	for range 3 {
		c := config(sarama.V2_8_0_0)
		c.Consumer.Offsets.Initial = sarama.OffsetOldest
		c.Consumer.Group.Session.Timeout = 6 * time.Second
		g, err := sarama.NewConsumerGroup(bootstrap, name, c)
		must(err, "a group")
		ctx, leave := context.WithTimeout(context.Background(), 30*time.Second)
		member := &taker{taken: taken, most: n / 3, leave: leave}
		for ctx.Err() == nil {
			must(g.Consume(ctx, []string{t}, member), "consume")
		}
		leave()
		must(g.Close(), "close")
		if member.count != n/3 {
			panic(fmt.Sprintf("%d of %d records came within 30 s", member.count, n/3))
		}
	}
	for partition := range partitions {
		equal(taken[int32(partition)], dealt(n, partition), fmt.Sprintf("partition %d", partition))
	}
}
