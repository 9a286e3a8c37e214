// A ring of pipes on Go's netpoll: a goroutine for each station, which passes on the bytes that it
// reads.
//
// The first argument is the number of the descriptor on which the program gets its orders. The
// second lists, for each station and with commas, the numbers of the descriptors that the station
// reads and writes; the last station is the driver. The program answers each order with a line:
//
//	trip ARRIVALS ONWARD    lets the placed bytes go round, and answers "done" when ARRIVALS bytes
//	                        have come to the driver, which passes the first ONWARD of them on;
//	                        or answers with the driver's error
//	counts                  answers for each station with the number of reads that returned
//	                        something and the number of bytes, and resets both
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// The most bytes that a station reads at a time.
const most = 64

type station struct {
	reader, writer *os.File
	reads, bytes   atomic.Uint64
	buffer         [most]byte
}

func (s *station) receive() (int, error) {
	count, err := s.reader.Read(s.buffer[:])
	if err == nil {
		s.reads.Add(1)
		s.bytes.Add(uint64(count))
	}
	return count, err
}

// If a station cannot go on, bytes are missing at the end of the trip, or the driver waits until
// the parent ends the process.
func (s *station) pass() {
	for {
		count, err := s.receive()
		if err == nil {
			_, err = s.writer.Write(s.buffer[:count])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "a station in Go:", err)
			return
		}
	}
}

func (s *station) drive(arrivals, onward uint64) error {
	for arrived := uint64(0); arrived < arrivals; {
		count, err := s.receive()
		if err != nil {
			return err
		}
		pass := uint64(count)
		if arrived+pass > onward {
			pass = max(onward, arrived) - arrived
		}
		arrived += uint64(count)
		if pass > 0 {
			if _, err := s.writer.Write(s.buffer[:pass]); err != nil {
				return err
			}
		}
	}
	return nil
}

func open(number, name string) *os.File {
	fd, err := strconv.Atoi(number)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return os.NewFile(uintptr(fd), name)
}

func main() {
	line := open(os.Args[1], "line")
	var stations []*station
	for _, ends := range strings.Split(os.Args[2], ",") {
		reader, writer, _ := strings.Cut(ends, ":")
		stations = append(stations, &station{reader: open(reader, "pipe"), writer: open(writer, "pipe")})
	}
	driver := stations[len(stations)-1]
	for _, station := range stations[:len(stations)-1] {
		go station.pass()
	}
	fmt.Fprintln(line, "ready")
	orders := bufio.NewScanner(line)
	for orders.Scan() {
		var arrivals, onward uint64
		answer := "done"
		if _, err := fmt.Sscanf(orders.Text(), "trip %d %d", &arrivals, &onward); err == nil {
			if err := driver.drive(arrivals, onward); err != nil {
				answer = err.Error()
			}
		} else {
			var counts []string
			for _, station := range stations {
				counts = append(counts, fmt.Sprint(station.reads.Swap(0), " ", station.bytes.Swap(0)))
			}
			answer = strings.Join(counts, " ")
		}
		fmt.Fprintln(line, answer)
	}
}
