-- Removes what an unfinished fork laid aside. KEYS: messages, runs.
redis.call('UNLINK', KEYS[1], KEYS[2])
return 1
