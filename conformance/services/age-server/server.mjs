// Serves PostgreSQL with Apache AGE on loopback: PGlite, which is PostgreSQL in WebAssembly, behind the PostgreSQL protocol.
//
// PGlite has one session, so clients take turns, as with a transaction-mode pooler: a client has the session from the
// first message of an exchange to a `ReadyForQuery` without an open transaction. Prepared statements are separate for each
// client. All other session state is shared, such as `SET`, `LISTEN` and advisory locks of a session. Statements cannot be
// cancelled, and `statement_timeout` has no effect.
//
//     node server.mjs DATA_FOLDER PASSWORD_FILE PORT PID_FILE

import { timingSafeEqual } from "node:crypto";
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { PGlite } from "@electric-sql/pglite";
import { age } from "@electric-sql/pglite-age";
import { Cutter, ProtocolError, cstring, failure, int32, message, messages, startupParameters } from "./wire.mjs";

const [dataFolder, passwordFile, port, pidFile] = process.argv.slice(2);
const password = readFileSync(passwordFile);
const CONNECTIONS_MAX = 500;
const MESSAGE_BYTES_MAX = 256 * 1024 * 1024;
const IDLE_IN_TRANSACTION_MS_MAX = 60_000;
// The status of `ReadyForQuery` outside a transaction, the letter I.
const IDLE = 0x49;
const PROTOCOL = 196608, CANCEL = 80877102, SSL = 80877103, GSS = 80877104;

/** The session, and the queue of clients that wait for it. */
class Session {
    #owner = null;
    #waiting = [];
    #idle = null;
    #dropped = [];

    constructor(database) {
        this.database = database;
    }

    run(bytes) {
        return Buffer.from(this.database.execProtocolRawSync(bytes));
    }

    /** Runs the pending messages of a client, now or when its turn comes. */
    exchange(client) {
        if (this.#owner === null) this.#owner = client;
        if (this.#owner === client) this.#serve(client);
        else if (!this.#waiting.includes(client)) this.#waiting.push(client);
    }

    #serve(client) {
        clearTimeout(this.#idle);
        while (client.pending.length > 0) {
            const answer = this.run(client.pending.shift());
            client.socket.write(answer);
            let status = null;
            for (const { type, bytes } of messages(answer)) if (type === "Z") status = bytes[5];
            if (status !== IDLE) continue;
            // A client with more messages goes to the end of the queue.
            if (client.pending.length > 0) this.#waiting.push(client);
            this.#release();
            return;
        }
        this.#limit(client);
    }

    #limit(client) {
        this.#idle = setTimeout(() => {
            client.socket.write(failure("FATAL", "25P03", "terminating connection due to idle-in-transaction timeout"));
            client.socket.end();
            this.leave(client);
        }, IDLE_IN_TRANSACTION_MS_MAX);
    }

    #release() {
        this.#drop();
        // Sets the next owner now, so that no other client gets the session first.
        this.#owner = this.#waiting.shift() ?? null;
        const next = this.#owner;
        if (next !== null) setImmediate(() => this.#owner === next && this.#serve(next));
    }

    /** Removes a client, its transaction and its statements. */
    leave(client) {
        this.#waiting = this.#waiting.filter((waiting) => waiting !== client);
        client.pending = [];
        this.forget(client.statements.splice(0));
        if (this.#owner === client) {
            clearTimeout(this.#idle);
            // The client may have sent messages without the final Sync.
            this.run(message("S"));
            this.run(message("Q", "ROLLBACK"));
            this.#release();
        } else if (this.#owner === null) {
            this.#drop();
        }
    }

    /** Drops prepared statements as soon as no client has the session. */
    forget(statements) {
        this.#dropped.push(...statements);
    }

    #drop() {
        const closes = this.#dropped.splice(0).map((name) => message("C", Buffer.from("S"), name));
        if (closes.length > 0) this.run(Buffer.concat([...closes, message("S")]));
    }
}

let clients = 0;

class Client {
    pending = [];
    statements = [];
    #number = ++clients;
    #unnamed = 0;
    #cutter = new Cutter();
    #exchange = [];
    #parameters = null;
    #started = false;

    constructor(socket, session, greeting) {
        this.socket = socket;
        this.session = session;
        this.greeting = greeting;
    }

    receive(chunk) {
        this.#cutter.push(chunk);
        for (;;) {
            const next = this.#cutter.next(MESSAGE_BYTES_MAX);
            if (next === null || this.socket.writableEnded) return;
            if (this.#started) this.#serve(next);
            else if (this.#parameters === null) this.#greet(next.bytes);
            else this.#admit(next);
        }
    }

    #greet(bytes) {
        const code = bytes.length < 8 ? 0 : bytes.readInt32BE(4);
        if (code === SSL || code === GSS) return this.socket.write("N");
        if (code === CANCEL) return this.socket.end();
        if (code !== PROTOCOL) return this.#refuse("0A000", "unsupported frontend protocol");
        this.#parameters = startupParameters(bytes);
        this.#cutter.started();
        // AuthenticationCleartextPassword: the connection never leaves this machine.
        this.socket.write(message("R", int32(3)));
    }

    #admit({ type, bytes }) {
        const given = type === "p" ? bytes.subarray(5, -1) : Buffer.alloc(0);
        const right = given.length === password.length && timingSafeEqual(given, password);
        const user = this.#parameters.get("user");
        if (!right || user !== "larder") return this.#refuse("28P01", "password authentication failed");
        if ((this.#parameters.get("database") ?? user) !== "larder") {
            return this.#refuse("3D000", "the database does not exist");
        }
        this.#started = true;
        this.socket.write(this.greeting);
    }

    #refuse(code, words) {
        this.socket.end(failure("FATAL", code, words));
    }

    #serve({ type, bytes }) {
        if (type === "X") return this.socket.end();
        this.#exchange.push(this.#renamed(type, bytes));
        // Query, Sync, Flush and FunctionCall need a response now.
        if (!"QSHF".includes(type)) return;
        this.pending.push(Buffer.concat(this.#exchange));
        this.#exchange = [];
        this.session.exchange(this);
    }

    /** Returns the message with names of prepared statements that are unique to this client. */
    #renamed(type, bytes) {
        if (type === "P") {
            const name = cstring(bytes, 5);
            return message("P", this.#define(name.value), bytes.subarray(name.next));
        }
        if (type === "B") {
            const portal = cstring(bytes, 5);
            const name = cstring(bytes, portal.next);
            return message("B", portal.value, this.#own(name.value), bytes.subarray(name.next));
        }
        if ((type === "D" || type === "C") && bytes[5] === 0x53) {
            const name = cstring(bytes, 6);
            return message(type, Buffer.from("S"), this.#own(name.value));
        }
        return bytes;
    }

    #own(name) {
        return name === "" ? `larder ${this.#number} unnamed ${this.#unnamed}` : `larder ${this.#number} ${name}`;
    }

    /** Returns a name for a new statement. The next unnamed statement replaces the last, so the old one is dropped. */
    #define(name) {
        if (name === "") {
            const old = this.#own("");
            this.#unnamed += 1;
            if (this.statements.includes(old)) {
                this.statements = this.statements.filter((known) => known !== old);
                this.session.forget([old]);
            }
        }
        const own = this.#own(name);
        this.statements.push(own);
        return own;
    }
}

async function open() {
    const complete = `${dataFolder}.complete`;
    // An interrupted initialization starts over.
    if (!existsSync(complete)) rmSync(dataFolder, { recursive: true, force: true });
    const database = await PGlite.create({ dataDir: dataFolder, extensions: { age } });
    writeFileSync(complete, "");
    return database;
}

async function greeting(database) {
    const names = ["server_version", "server_encoding", "client_encoding", "DateStyle", "TimeZone",
        "integer_datetimes", "standard_conforming_strings"];
    const status = [];
    for (const name of names) {
        const { rows } = await database.query("SELECT current_setting($1) AS value", [name]);
        status.push(message("S", name, rows[0].value));
    }
    return Buffer.concat([
        message("R", int32(0)), ...status, message("K", int32(process.pid), int32(0)), message("Z", Buffer.from("I")),
    ]);
}

const database = await open();
const session = new Session(database);
const hello = await greeting(database);
const version = (await database.query(
    `SELECT current_setting('server_version') || ', AGE ' || default_version AS text
     FROM pg_available_extensions WHERE name = 'age'`,
)).rows[0].text;
const server = createServer({ noDelay: true }, (socket) => {
    const client = new Client(socket, session, hello);
    socket.on("data", (chunk) => {
        try {
            client.receive(chunk);
        } catch (error) {
            // After an error inside PGlite, the state of the session is unknown. The process ends, and the next start
            // recovers the data from the write-ahead log.
            if (!(error instanceof ProtocolError)) throw error;
            socket.destroy();
        }
    });
    socket.on("error", () => socket.destroy());
    socket.on("close", () => session.leave(client));
});
server.maxConnections = CONNECTIONS_MAX;

async function stop() {
    server.close();
    await database.close();
    process.exit(0);
}
process.once("SIGTERM", stop);
process.once("SIGINT", stop);
server.listen({ host: "127.0.0.1", port: Number(port) }, () => {
    console.log(`serving PostgreSQL ${version}`);
    writeFileSync(`${pidFile}.new`, `${process.pid}\n${port}\n`);
    renameSync(`${pidFile}.new`, pidFile);
});
