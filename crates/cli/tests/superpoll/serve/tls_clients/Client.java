// A client of java.net.http and JSSE: PORT CERTIFICATE VERSION LARGE-FILE.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.Security;
import java.security.cert.CertificateFactory;
import java.util.Arrays;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

public class Client {
    static HttpClient http;
    static String port;

    static void check(boolean isRight, Object what) {
        if (!isRight) {
            throw new AssertionError(what);
        }
    }

    static byte[] request(String method, String path, byte[] body, int status) throws Exception {
        var publisher = body == null
            ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofByteArray(body);
        var request = HttpRequest.newBuilder(URI.create("https://localhost:" + port + path))
            .method(method, publisher).build();
        var answer = http.send(request, HttpResponse.BodyHandlers.ofByteArray());
        check(answer.statusCode() == status, answer);
        check(answer.version() == http.version(), answer.version());
        return answer.body();
    }

    static void small() throws Exception {
        check(new String(request("GET", "/small", null, 200)).equals("0123456789"), "another file");
    }

    /** Opens a connection, and leaves a mark in its session; a session that is resumed has it. */
    static SSLSocket connect(SSLContext context, SSLParameters parameters) throws Exception {
        var socket = (SSLSocket) context.getSocketFactory().createSocket("localhost", Integer.parseInt(port));
        socket.setSSLParameters(parameters);
        socket.startHandshake();
        return socket;
    }

    static void ask(SSLSocket socket) throws Exception {
        var text = "GET /small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        socket.getOutputStream().write(text.getBytes(StandardCharsets.US_ASCII));
        // An end that is not announced is an error.
        check(new String(socket.getInputStream().readAllBytes()).endsWith("0123456789"), "another file");
        socket.close();
    }

    public static void main(String[] arguments) throws Exception {
        // The keys of this cipher change behind each 128 KiB.
        Security.setProperty("jdk.tls.keyLimits", "ChaCha20-Poly1305 KeyUpdate 2^17");
        port = arguments[0];
        var trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null);
        try (var pem = Files.newInputStream(Path.of(arguments[1]))) {
            trusted.setCertificateEntry("server", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        var context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        var parameters = new SSLParameters();
        parameters.setProtocols(new String[] {arguments[2]});
        var large = Files.readAllBytes(Path.of(arguments[3]));
        var input = new BufferedReader(new InputStreamReader(System.in));
        // First, since each of the clients below keeps a connection of its own.
        http = HttpClient.newBuilder().sslContext(context).sslParameters(parameters)
            .version(HttpClient.Version.HTTP_1_1).build();
        small();
        for (var round = 0; round < 2; round++) {
            System.out.println("idle");
            input.readLine();
            small();
        }
        for (var version : HttpClient.Version.values()) {
            for (var isChanging : new boolean[] {true, false}) {
                var isTls13 = arguments[2].equals("TLSv1.3");
                parameters.setCipherSuites(isChanging && isTls13 ? new String[] {"TLS_CHACHA20_POLY1305_SHA256"} : null);
                http = HttpClient.newBuilder().sslContext(context).sslParameters(parameters).version(version).build();
                small();
                request("POST", "/c", Arrays.copyOf(large, 1 << 20), 201);
                small();
                // A server that sends all of this does not see each change of keys in time.
                if (!isChanging) {
                    check(Arrays.equals(request("GET", "/large", null, 200), large), "another large file");
                }
            }
        }
        parameters.setCipherSuites(null);
        var socket = connect(context, parameters);
        ask(socket);
        socket.getSession().putValue("mark", "here");
        socket = connect(context, parameters);
        check(socket.getSession().getValue("mark") != null, "the session was not resumed");
        ask(socket);
        System.out.println("done");
        System.exit(0);
    }
}
