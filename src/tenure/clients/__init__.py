"""Clients as users hold them: `Client` for trio and asyncio, `SyncClient` for threads.

All of a client's work is done by one core under trio (`tenure.scheduler.client`). `operations` says what each
public method does with it, `homes` where it lives: in the caller's own trio run, or in a thread that runs trio.
"""
