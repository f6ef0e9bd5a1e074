BEGIN TRANSACTION;
CREATE TABLE agent_messages (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                message_data TEXT NOT NULL,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id) REFERENCES agent_sessions (session_id)
                    ON DELETE CASCADE
            );
INSERT INTO "agent_messages" VALUES(1,'basel-1','{"role": "user", "content": "Which platform for Basel?"}','2026-01-02 03:04:05');
INSERT INTO "agent_messages" VALUES(2,'basel-1','{"id": "rs_1", "summary": [{"text": "A look-up.", "type": "summary_text"}], "type": "reasoning"}','2026-01-02 03:04:05');
INSERT INTO "agent_messages" VALUES(3,'basel-1','{"arguments": "{\"to\":\"Basel\"}", "call_id": "call_1", "name": "platform", "type": "function_call", "id": "fc_1", "status": "completed"}','2026-01-02 03:04:05');
INSERT INTO "agent_messages" VALUES(4,'basel-1','{"type": "function_call_output", "call_id": "call_1", "output": "7"}','2026-01-02 03:04:05');
INSERT INTO "agent_messages" VALUES(5,'basel-1','{"id": "msg_1", "content": [{"annotations": [], "text": "Platform 7.", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-01-02 03:04:05');
INSERT INTO "agent_messages" VALUES(6,'basel-1','{"role": "user", "content": "And for Bern?"}','2026-01-02 03:04:05');
INSERT INTO "agent_messages" VALUES(7,'basel-1','{"role": "user", "content": "And for Chur?"}','2026-01-02 03:04:05');
CREATE TABLE agent_sessions (
                session_id TEXT PRIMARY KEY,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
            );
INSERT INTO "agent_sessions" VALUES('basel-1','2026-01-02 03:04:05','2026-01-02 03:04:05');
CREATE TABLE branch_reservations (
                session_id TEXT NOT NULL,
                branch_id TEXT NOT NULL,
                PRIMARY KEY (session_id, branch_id)
            );
INSERT INTO "branch_reservations" VALUES('basel-1','main');
INSERT INTO "branch_reservations" VALUES('basel-1','other');
CREATE TABLE message_structure (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                message_id INTEGER NOT NULL,
                branch_id TEXT NOT NULL DEFAULT 'main',
                message_type TEXT NOT NULL,
                sequence_number INTEGER NOT NULL,
                user_turn_number INTEGER,
                branch_turn_number INTEGER,
                tool_name TEXT,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id)
                    REFERENCES agent_sessions(session_id) ON DELETE CASCADE,
                FOREIGN KEY (message_id)
                    REFERENCES agent_messages(id) ON DELETE CASCADE
            );
INSERT INTO "message_structure" VALUES(1,'basel-1',1,'main','user',1,1,1,NULL,'2026-01-02 03:04:05');
INSERT INTO "message_structure" VALUES(2,'basel-1',2,'main','reasoning',2,1,1,NULL,'2026-01-02 03:04:05');
INSERT INTO "message_structure" VALUES(3,'basel-1',3,'main','function_call',3,1,1,'platform','2026-01-02 03:04:05');
INSERT INTO "message_structure" VALUES(4,'basel-1',4,'main','function_call_output',4,1,1,NULL,'2026-01-02 03:04:05');
INSERT INTO "message_structure" VALUES(5,'basel-1',5,'main','assistant',5,1,1,NULL,'2026-01-02 03:04:05');
INSERT INTO "message_structure" VALUES(6,'basel-1',6,'main','user',6,2,2,NULL,'2026-01-02 03:04:05');
INSERT INTO "message_structure" VALUES(7,'basel-1',1,'other','user',7,1,1,NULL,'2026-01-02 03:04:05');
INSERT INTO "message_structure" VALUES(8,'basel-1',2,'other','reasoning',8,1,1,NULL,'2026-01-02 03:04:05');
INSERT INTO "message_structure" VALUES(9,'basel-1',3,'other','function_call',9,1,1,'platform','2026-01-02 03:04:05');
INSERT INTO "message_structure" VALUES(10,'basel-1',4,'other','function_call_output',10,1,1,NULL,'2026-01-02 03:04:05');
INSERT INTO "message_structure" VALUES(11,'basel-1',5,'other','assistant',11,1,1,NULL,'2026-01-02 03:04:05');
INSERT INTO "message_structure" VALUES(12,'basel-1',7,'other','user',12,2,2,NULL,'2026-01-02 03:04:05');
CREATE TABLE session_clear_generations (
                session_id TEXT PRIMARY KEY,
                generation INTEGER NOT NULL DEFAULT 0
            );
INSERT INTO "session_clear_generations" VALUES('basel-1',0);
CREATE TABLE turn_usage (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                branch_id TEXT NOT NULL DEFAULT 'main',
                user_turn_number INTEGER NOT NULL,
                requests INTEGER DEFAULT 0,
                input_tokens INTEGER DEFAULT 0,
                output_tokens INTEGER DEFAULT 0,
                total_tokens INTEGER DEFAULT 0,
                input_tokens_details JSON,
                output_tokens_details JSON,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id)
                    REFERENCES agent_sessions(session_id) ON DELETE CASCADE,
                UNIQUE(session_id, branch_id, user_turn_number)
            );
CREATE INDEX idx_agent_messages_session_id
            ON agent_messages (session_id, id)
        ;
CREATE INDEX idx_structure_session_seq
            ON message_structure(session_id, sequence_number)
        ;
CREATE INDEX idx_structure_branch
            ON message_structure(session_id, branch_id)
        ;
CREATE INDEX idx_structure_turn
            ON message_structure(session_id, branch_id, user_turn_number)
        ;
CREATE INDEX idx_structure_branch_seq
            ON message_structure(session_id, branch_id, sequence_number)
        ;
CREATE INDEX idx_turn_usage_session_turn
            ON turn_usage(session_id, branch_id, user_turn_number)
        ;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('agent_messages',7);
INSERT INTO "sqlite_sequence" VALUES('message_structure',12);
COMMIT;
