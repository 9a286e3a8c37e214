// An echo server on Go's netpoll: a goroutine for each connection, which sends back what it reads.
//
// Its arguments are the number of the descriptor on which it says that it is ready (or why it cannot be), the size
// of a buffer, and the numbers of its connections' sockets, with commas.
package main

import (
	"encoding/json"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
)

func main() {
	number, err := strconv.Atoi(os.Args[1])
	if err != nil {
		os.Exit(2)
	}
	line := os.NewFile(uintptr(number), "line")
	say := func(what any) {
		text, _ := json.Marshal(what)
		line.Write(append(text, '\n'))
	}
	if err := serve(os.Args[2], os.Args[3], func() { say("Ready") }); err != nil {
		say(map[string]string{"Failed": err.Error()})
		os.Exit(1)
	}
}

func serve(size string, sockets string, ready func()) error {
	room, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	var open sync.WaitGroup
	for _, text := range strings.Split(sockets, ",") {
		number, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(number), "socket")
		connection, err := net.FileConn(file)
		if err != nil {
			return err
		}
		// The connection has a duplicate.
		file.Close()
		open.Add(1)
		go func() {
			defer open.Done()
			echo(connection, make([]byte, room))
		}()
	}
	ready()
	open.Wait()
	return nil
}

// A connection that breaks is missed by who asks.
func echo(connection net.Conn, buffer []byte) {
	defer connection.Close()
	for {
		count, err := connection.Read(buffer)
		if err != nil {
			return
		}
		if _, err := connection.Write(buffer[:count]); err != nil {
			return
		}
	}
}
