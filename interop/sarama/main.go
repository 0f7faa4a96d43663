// Sarama against the broker, set up as its users set up exactly-once producers: asynchronous, idempotent, all acknowledgements, one
// request in flight, round robin, a transactional id.
//
// Without arguments: all checks, in order. `victim ...` and `loop ...` are the programs that the checks kill (victim.go, loop.go).
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const partitions = 3

var bootstrap = []string{os.Getenv("INTEROP_BOOTSTRAP")}

// must ends a check: the world is not as it should be. The checks' runner recovers and says which.
func must(err error, what string) {
	if err != nil {
		panic(fmt.Sprintf("%s: %v", what, err))
	}
}

func fresh(name string) string { return fmt.Sprintf("%s-%d", name, time.Now().UnixNano()) }

func config(version sarama.KafkaVersion) *sarama.Config {
	c := sarama.NewConfig()
	c.Version = version
	c.ClientID = "interop"
	// Else sarama gives records up while a broker starts: after three failed refreshes its circuit breaker opens.
	c.Metadata.Retry.Max = 300
	c.Metadata.Retry.Backoff = 100 * time.Millisecond
	return c
}

func topic(name string, count int32) string { return topicWith(name, count, nil) }

func topicWith(name string, count int32, settings map[string]*string) string {
	made := fresh(name)
	admin, err := sarama.NewClusterAdmin(bootstrap, config(sarama.V2_8_0_0))
	must(err, "an admin")
	defer admin.Close()
	must(admin.CreateTopic(made, &sarama.TopicDetail{NumPartitions: count, ReplicationFactor: 1, ConfigEntries: settings}, false), "a topic")
	return made
}

// stored are the codecs of a partition's batches as they lie on the broker's disk, each once.
func stored(topic string, partition int32) []string {
	words := append(strings.Fields(os.Getenv("INTEROP_STORED")), topic, fmt.Sprint(partition))
	out, err := exec.Command(words[0], words[1:]...).Output()
	must(err, "the stored batches")
	found := []string{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if codec := strings.Fields(line)[1]; !slices.Contains(found, codec) {
			found = append(found, codec)
		}
	}
	return found
}

func broker(command string) {
	words := append(strings.Fields(os.Getenv("INTEROP_BROKER")), command)
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	must(err, "broker "+command+": "+string(out))
}

type record struct {
	Offset int64
	Key    string
	Value  string
}

// read returns what one partition shows under read_committed (or not) up to its end. A consumer of sarama can't say where the end is:
// under read_committed the last offset may be a marker's. So a last record is written behind everything, with the key "end".
func read(topic string, partition int32, committed bool) []record {
	c := config(sarama.V2_8_0_0)
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	last, err := sarama.NewSyncProducer(bootstrap, c)
	must(err, "a producer for the end")
	_, end, err := last.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: partition, Key: sarama.StringEncoder("end")})
	must(err, "the end")
	last.Close()
	c = config(sarama.V2_8_0_0)
	if committed {
		c.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(bootstrap, c)
	must(err, "a consumer")
	defer consumer.Close()
	from, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	must(err, "consume")
	defer from.Close()
	found := []record{}
	for {
		select {
		case m := <-from.Messages():
			if m.Offset == end {
				return found
			}
			if string(m.Key) != "end" {
				found = append(found, record{m.Offset, string(m.Key), string(m.Value)})
			}
		case <-time.After(20 * time.Second):
			panic(fmt.Sprintf("%s/%d: no end after %d records (an open transaction?)", topic, partition, len(found)))
		}
	}
}

func values(topic string, partition int32, committed bool) []string {
	found := []string{}
	for _, r := range read(topic, partition, committed) {
		found = append(found, r.Value)
	}
	return found
}

// equal compares whole sequences and shows where they part.
func equal[T any](found, expected []T, what string) {
	at := 0
	for at < len(found) && at < len(expected) && reflect.DeepEqual(found[at], expected[at]) {
		at++
	}
	if at == len(found) && at == len(expected) {
		return
	}
	panic(fmt.Sprintf("%s: %d found, %d expected; they part at %d: found %v, expected %v", what, len(found), len(expected), at,
		found[at:min(at+5, len(found))], expected[at:min(at+5, len(expected))]))
}

func count(few, full int) int {
	if os.Getenv("INTEROP_FULL") != "" {
		return full
	}
	return few
}

func main() {
	if os.Getenv("INTEROP_LOG") != "" {
		sarama.Logger = log.New(os.Stderr, "sarama ", log.Lmicroseconds)
		sarama.DebugLogger = sarama.Logger
	}
	if len(os.Args) > 1 && os.Args[1] == "victim" {
		os.Exit(victim(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "loop" {
		a := os.Args[2:]
		os.Exit(loop(a[0], a[1], a[2], a[3], a[4], number(a[5])))
	}
	checks := []struct {
		what string
		run  func()
	}{
		{"codecs: produce and consume under none, gzip, snappy, lz4, zstd; records, keys and headers in order; stored under that codec", codecs},
		{"versions: from 0.11 to 4.0 produced, stored compressed and read; before that refused, at once and with an error", versions},
		{"killed broker: an idempotent producer over two kill -9 of the broker; nothing lost, nothing twice, in order", killedBroker},
		{"group: a consumer group takes every record once, and goes on where it was", group},
		{"many: transactions of one record back to back, round robin, without a retry", many},
		{"aborts: committed and aborted transactions; both isolation levels; the next ones go on", aborts},
		{"zombie: a producer with the old epoch is fenced, fatally, and its open transaction is aborted", zombie},
		{"abortable: a record too large, a topic deleted, offsets of no member: each aborts the transaction and the next one commits", abortable},
		{"timed out: the broker aborts what takes too long; its producer ends fatally, its successor commits", timedOut},
		{"steps: the client killed between each two steps and restarted under the same id; read_committed is exact", steps},
		{"broker in transactions: the broker killed between and in transactions; each transaction whole and once", brokerInTransactions},
		{"exactly once: consume, transform, produce with offsets in the transaction, killed before and after each request of it", exactlyOnce},
	}
	only, failed, ran := os.Getenv("INTEROP_ONLY"), 0, 0
	for _, check := range checks {
		if !strings.Contains(check.what, only) {
			continue
		}
		if skipped(check.what) {
			fmt.Printf("    skipped %s\n", check.what)
			continue
		}
		ran++
		began := time.Now()
		if why := try(check.run); why != "" {
			failed++
			fmt.Printf("    FAILED  %s\n            %s\n", check.what, why)
		} else {
			fmt.Printf("    ok      %s (%.1f s)\n", check.what, time.Since(began).Seconds())
		}
	}
	if ran == 0 {
		fmt.Printf("    FAILED  no check has %q in its name\n", only)
	}
	if failed > 0 || ran == 0 {
		os.Exit(1)
	}
}

func try(check func()) (why string) {
	defer func() {
		if r := recover(); r != nil {
			why = fmt.Sprint(r)
		}
	}()
	check()
	return ""
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	must(err, "a number")
	return n
}

// Whether the check has one of $INTEROP_SKIP's words in its name.
func skipped(what string) bool {
	for _, words := range strings.Split(os.Getenv("INTEROP_SKIP"), "|") {
		if words != "" && strings.Contains(what, words) {
			return true
		}
	}
	return false
}
