// A service of Go's grpc, and a client that checks it through a gateway.
//
//	notes server                   prints its address, and serves until its input ends
//	notes client ADDRESS CA.pem    prints a line for each form of call that works
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type note = wrapperspb.StringValue

// The streams of calls that are endless until they are cancelled.
var running atomic.Int64

func chat(_ any, stream grpc.ServerStream) error {
	for {
		var asked note
		if err := stream.RecvMsg(&asked); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if asked.Value == "refused" {
			return status.Error(codes.NotFound, "no such note")
		}
		if err := stream.SendMsg(wrapperspb.String("re: " + asked.Value)); err != nil {
			return err
		}
	}
}

func collect(_ any, stream grpc.ServerStream) error {
	var all strings.Builder
	for {
		var asked note
		if err := stream.RecvMsg(&asked); err == io.EOF {
			return stream.SendMsg(wrapperspb.String(all.String()))
		} else if err != nil {
			return err
		}
		all.WriteString(asked.Value)
	}
}

func count(_ any, stream grpc.ServerStream) error {
	var asked note
	if err := stream.RecvMsg(&asked); err != nil {
		return err
	}
	for i := range 1000 {
		if err := stream.SendMsg(wrapperspb.String(fmt.Sprint(asked.Value, i))); err != nil {
			return err
		}
	}
	stream.SetTrailer(metadata.Pairs("x-sum-bin", "\x00\xff"))
	return nil
}

func endless(_ any, stream grpc.ServerStream) error {
	running.Add(1)
	defer running.Add(-1)
	if err := stream.SendMsg(wrapperspb.String("begun")); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func call(work func(context.Context, *note) (*note, error)) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var asked note
		if err := decode(&asked); err != nil {
			return nil, err
		}
		return work(ctx, &asked)
	}
}

func serve() {
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Notes",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "Unary", Handler: call(func(_ context.Context, asked *note) (*note, error) {
				if asked.Value == "refused" {
					return nil, status.Error(codes.NotFound, "no such note")
				}
				return wrapperspb.String("re: " + asked.Value), nil
			})},
			{MethodName: "Never", Handler: call(func(ctx context.Context, _ *note) (*note, error) {
				running.Add(1)
				defer running.Add(-1)
				<-ctx.Done()
				return nil, ctx.Err()
			})},
			{MethodName: "Running", Handler: call(func(context.Context, *note) (*note, error) {
				return wrapperspb.String(fmt.Sprint(running.Load())), nil
			})},
		},
		Streams: []grpc.StreamDesc{
			{StreamName: "Chat", Handler: chat, ServerStreams: true, ClientStreams: true},
			{StreamName: "Collect", Handler: collect, ClientStreams: true},
			{StreamName: "Count", Handler: count, ServerStreams: true},
			{StreamName: "Endless", Handler: endless, ServerStreams: true, ClientStreams: true},
		},
	}, struct{}{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go func() { check(server.Serve(listener)) }()
	fmt.Println(listener.Addr())
	io.Copy(io.Discard, os.Stdin)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func expect(what string, got, wanted any) {
	if got != wanted {
		check(fmt.Errorf("%s: %v instead of %v", what, got, wanted))
	}
}

type client struct{ *grpc.ClientConn }

func (c client) unary(ctx context.Context, method, value string) (string, error) {
	var answer note
	err := c.Invoke(ctx, "/test.Notes/"+method, wrapperspb.String(value), &answer)
	return answer.Value, err
}

func (c client) stream(ctx context.Context, method string) grpc.ClientStream {
	both := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	stream, err := c.NewStream(ctx, both, "/test.Notes/"+method)
	check(err)
	return stream
}

// Waits until no endless call is handled.
func (c client) quiet(ctx context.Context) {
	for {
		answer, err := c.unary(ctx, "Running", "")
		check(err)
		if answer == "0" {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func receive(stream grpc.ClientStream) (string, error) {
	var answer note
	err := stream.RecvMsg(&answer)
	return answer.Value, err
}

func ask(address, ca string) {
	trusted, err := credentials.NewClientTLSFromFile(ca, "localhost")
	check(err)
	large := 8 << 20
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(trusted),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(large)))
	check(err)
	c := client{conn}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	for i := range 100 {
		answer, err := c.unary(ctx, "Unary", fmt.Sprint(i))
		check(err)
		expect("unary", answer, fmt.Sprint("re: ", i))
	}
	_, err = c.unary(ctx, "Unary", "refused")
	expect("an error", status.Convert(err).String(), status.New(codes.NotFound, "no such note").String())
	value := strings.Repeat("x", 3<<20)
	answer, err := c.unary(ctx, "Unary", value)
	check(err)
	expect("a large message", answer == "re: "+value, true)
	fmt.Println("unary")

	stream := c.stream(ctx, "Collect")
	for range 1000 {
		check(stream.SendMsg(wrapperspb.String("some")))
	}
	check(stream.CloseSend())
	answer, err = receive(stream)
	check(err)
	expect("client streaming", answer == strings.Repeat("some", 1000), true)
	fmt.Println("client streaming")

	stream = c.stream(ctx, "Count")
	check(stream.SendMsg(wrapperspb.String("note ")))
	check(stream.CloseSend())
	for i := range 1000 {
		answer, err = receive(stream)
		check(err)
		expect("server streaming", answer, fmt.Sprint("note ", i))
	}
	_, err = receive(stream)
	expect("the end of a stream", err, io.EOF)
	expect("trailers", fmt.Sprint(stream.Trailer()["x-sum-bin"]), fmt.Sprint([]string{"\x00\xff"}))
	fmt.Println("server streaming")

	stream = c.stream(ctx, "Chat")
	for i := range 200 {
		check(stream.SendMsg(wrapperspb.String(fmt.Sprint(i))))
		answer, err = receive(stream)
		check(err)
		expect("a conversation", answer, fmt.Sprint("re: ", i))
	}
	// The server ends the call, and the client does not.
	check(stream.SendMsg(wrapperspb.String("refused")))
	_, err = receive(stream)
	expect("an error in a conversation", status.Code(err), codes.NotFound)
	fmt.Println("bidirectional streaming")

	soon, end := context.WithTimeout(ctx, 200*time.Millisecond)
	_, err = c.unary(soon, "Never", "")
	end()
	expect("a deadline", status.Code(err), codes.DeadlineExceeded)
	c.quiet(ctx)
	soon, end = context.WithTimeout(ctx, 200*time.Millisecond)
	stream = c.stream(soon, "Endless")
	_, err = receive(stream)
	check(err)
	_, err = receive(stream)
	end()
	expect("a deadline of a stream", status.Code(err), codes.DeadlineExceeded)
	c.quiet(ctx)
	fmt.Println("deadline")

	for range 3 {
		soon, end := context.WithCancel(ctx)
		stream = c.stream(soon, "Endless")
		answer, err = receive(stream)
		check(err)
		answer, err = c.unary(ctx, "Running", "")
		check(err)
		expect("calls", answer, "1")
		end()
		_, err = receive(stream)
		expect("a cancelled call", status.Code(err), codes.Canceled)
		c.quiet(ctx)
	}
	fmt.Println("cancel")
}

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "server":
		serve()
	case len(os.Args) == 4 && os.Args[1] == "client":
		ask(os.Args[2], os.Args[3])
	default:
		check(fmt.Errorf("usage: notes server | notes client ADDRESS CA.pem"))
	}
}
