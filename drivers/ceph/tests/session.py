"""Opens one image as a client of its own: `session.py CONFIG USER POOL IMAGE`. For each line it writes the line's first byte to
the image's first. Ends with its input."""

import sys

import rados
import rbd

config, user, pool, image = sys.argv[1:]
cluster = rados.Rados(conffile=config, rados_id=user)
cluster.connect()
with cluster.open_ioctx(pool) as pool, rbd.Image(pool, image) as image:
    print(image.size(), flush=True)
    for line in sys.stdin:
        try:
            image.write(line[0].encode(), 0)
            print("written", flush=True)
        except rbd.Error as error:
            print(type(error).__name__, flush=True)
cluster.shutdown()
