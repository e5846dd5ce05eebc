-- command.outbox_lock: nobody reads the outbox until the transaction ends
lock table outbox in access exclusive mode
