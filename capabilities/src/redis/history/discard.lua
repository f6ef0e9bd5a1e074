-- Removes the staged messages of an unfinished fork. KEYS: messages, runs.
redis.call('UNLINK', KEYS[1], KEYS[2])
return 1
