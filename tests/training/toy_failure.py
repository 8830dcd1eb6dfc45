"""One process of test_distributed: the second one fails, while the first one has much to do."""

import os
import sys
import time

if __name__ == "__main__":
    if os.environ["RANK"] == "1":
        sys.exit(7)
    time.sleep(100)
