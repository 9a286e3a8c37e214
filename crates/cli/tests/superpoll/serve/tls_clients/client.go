// A client of net/http and crypto/tls: PORT CERTIFICATE VERSION LARGE-FILE.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"time"
)

func check(isRight bool, what ...any) {
	if !isRight {
		fmt.Fprintln(os.Stderr, what...)
		os.Exit(1)
	}
}

func main() {
	port, version := os.Args[1], os.Args[3]
	pem, err := os.ReadFile(os.Args[2])
	check(err == nil, err)
	large, err := os.ReadFile(os.Args[4])
	check(err == nil, err)
	roots := x509.NewCertPool()
	check(roots.AppendCertsFromPEM(pem), "the certificate cannot be read")
	number := map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}[version]
	config := &tls.Config{
		RootCAs: roots, ServerName: "localhost", MinVersion: number, MaxVersion: number,
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: config, MaxConnsPerHost: 1},
		Timeout:   time.Minute,
	}
	isReused := false
	request := func(method, path string, body []byte) (int, []byte) {
		request, err := http.NewRequest(method, "https://localhost:"+port+path, bytes.NewReader(body))
		check(err == nil, err)
		trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { isReused = got.Reused }}
		answer, err := client.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
		check(err == nil, err)
		text, err := io.ReadAll(answer.Body)
		check(err == nil, err)
		check(answer.Proto == "HTTP/1.1" && answer.TLS.Version == number, answer.Proto, answer.TLS.Version)
		return answer.StatusCode, text
	}
	small := func() {
		status, text := request("GET", "/small", nil)
		check(status == 200 && string(text) == "0123456789", status, string(text))
	}
	input := bufio.NewReader(os.Stdin)
	parked := func() {
		fmt.Println("idle")
		input.ReadString('\n')
	}
	small()
	small()
	check(isReused, "the second request came on another connection")
	status, _ := request("POST", "/c", large[:1<<20])
	check(status == 201, status)
	status, text := request("GET", "/large", nil)
	check(status == 200 && bytes.Equal(text, large), status, len(text))
	for range [2]int{} {
		parked()
		small()
		check(isReused, "the request behind the pause came on another connection")
	}
	parked()
	client.CloseIdleConnections()

	stream, err := tls.Dial("tcp", "127.0.0.1:"+port, config)
	check(err == nil, err)
	check(stream.ConnectionState().DidResume, "the session was not resumed")
	fmt.Fprint(stream, "GET /small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	// An end that is not announced is an error.
	text, err = io.ReadAll(stream)
	check(err == nil && bytes.HasSuffix(text, []byte("\r\n\r\n0123456789")), err, string(text))
	fmt.Println("done")
}
