/* Made by tools/golden_twin.py with PyTorch 1.13.0a0: do not edit. */
static const struct golden_note golden_notes_dtc_two[] = {
    {0, 0, "loss", 1.06822339}, {0, 0, "supervised", 0.976291762}, {0, 0, "ce", 0.759122941}, {0, 0,
    "dice", 0.959349518}, {0, 0, "distance", 0.0564741468}, {0, 0, "weight", 0.33689735}, {0, 0,
    "gradient", 0.797740442}, {0, 0, "consistency", 0.272877267}, {0, 1, "loss", 1.05478629}, {0, 1,
    "supervised", 0.958614458}, {0, 1, "ce", 0.759865348}, {0, 1, "dice", 0.937960647}, {0, 1,
    "distance", 0.0688460359}, {0, 1, "weight", 0.33689735}, {0, 1, "gradient", 0.968476271}, {0, 1,
    "consistency", 0.285463301}, {0, 2, "loss", 1.06773062}, {0, 2, "supervised", 0.972699478}, {0,
    2, "ce", 0.759140355}, {0, 2, "dice", 0.954122009}, {0, 2, "distance", 0.0619248961}, {0, 2,
    "weight", 0.33689735}, {0, 2, "gradient", 0.438596595}, {0, 2, "consistency", 0.282077431}, {0,
    3, "loss", 1.05398105}, {0, 3, "supervised", 0.964573089}, {0, 3, "ce", 0.756162587}, {0, 3,
    "dice", 0.922984736}, {0, 3, "distance", 0.138627844}, {0, 3, "weight", 0.33689735}, {0, 3,
    "gradient", 1.06521607}, {0, 3, "consistency", 0.265386348}, {0, 4, "loss", 1.07469456}, {0, 4,
    "supervised", 0.993439108}, {0, 4, "ce", 0.749696096}, {0, 4, "dice", 0.956947535}, {0, 4,
    "distance", 0.121638576}, {0, 4, "weight", 0.33689735}, {0, 4, "gradient", 0.952597222}, {0, 4,
    "consistency", 0.241187559}, {0, 5, "loss", 1.09069549}, {0, 5, "supervised", 0.994895348}, {0,
    5, "ce", 0.963984469}, {0, 5, "dice", 0.939991407}, {0, 5, "distance", 0.183013139}, {0, 5,
    "weight", 0.33689735}, {0, 5, "gradient", 0.966593503}, {0, 5, "consistency", 0.284360043}, {0,
    6, "loss", 1.06815608}, {0, 6, "supervised", 0.969732933}, {0, 6, "ce", 0.897066136}, {0, 6,
    "dice", 0.932843149}, {0, 6, "distance", 0.122965946}, {0, 6, "weight", 0.33689735}, {0, 6,
    "gradient", 0.8850522}, {0, 6, "consistency", 0.292145809}, {0, 7, "loss", 1.08501892}, {0, 7,
    "supervised", 0.98592358}, {0, 7, "ce", 0.824943503}, {0, 7, "dice", 0.947639724}, {0, 7,
    "distance", 0.127612855}, {0, 7, "weight", 0.33689735}, {0, 7, "gradient", 0.88383583}, {0, 7,
    "consistency", 0.294141045}, {0, 8, "loss", 1.04115119}, {0, 8, "supervised", 0.958695161}, {0,
    8, "ce", 0.745533292}, {0, 8, "dice", 0.922697548}, {0, 8, "distance", 0.119992044}, {0, 8,
    "weight", 0.33689735}, {0, 8, "gradient", 0.802270078}, {0, 8, "consistency", 0.244751209}, {0,
    9, "loss", 1.08614051}, {0, 9, "supervised", 0.994200922}, {0, 9, "ce", 0.824763355}, {0, 9,
    "dice", 0.961248826}, {0, 9, "distance", 0.109840322}, {0, 9, "weight", 0.33689735}, {0, 9,
    "gradient", 1.34806308}, {0, 9, "consistency", 0.272900894}
};
static const struct golden_note golden_notes_dtc_three[] = {
    {0, 0, "loss", 1.08731096}, {0, 0, "supervised", 1.08288756}, {0, 0, "ce", 1.02120671}, {0, 0,
    "dice", 0.948254301}, {0, 0, "distance", 0.448777534}, {0, 0, "weight", 0.013475894}, {0, 0,
    "gradient", 0.855005213}, {0, 0, "consistency", 0.328245172}, {0, 1, "loss", 1.00957277}, {0, 1,
    "supervised", 0.99823594}, {0, 1, "ce", 1.05076128}, {0, 1, "dice", 0.925794594}, {0, 1,
    "distance", 0.241471154}, {0, 1, "weight", 0.0348447493}, {0, 1, "gradient", 0.207033957}, {0,
    1, "consistency", 0.32535266}, {0, 2, "loss", 1.19520697}, {0, 2, "supervised", 1.16667058}, {0,
    2, "ce", 1.30131178}, {0, 2, "dice", 0.975204018}, {0, 2, "distance", 0.638221864}, {0, 2,
    "weight", 0.081524408}, {0, 2, "gradient", 0.680339431}, {0, 2, "consistency", 0.350034951}, {0,
    3, "loss", 1.17413346}, {0, 3, "supervised", 1.1221383}, {0, 3, "ce", 1.3182809}, {0, 3, "dice",
    0.971344921}, {0, 3, "distance", 0.50264458}, {0, 3, "weight", 0.172587173}, {0, 3, "gradient",
    1.12085442}, {0, 3, "consistency", 0.301269016}, {0, 4, "loss", 1.23526136}, {0, 4,
    "supervised", 1.15172827}, {0, 4, "ce", 1.29607801}, {0, 4, "dice", 0.969427444}, {0, 4,
    "distance", 0.607669407}, {0, 4, "weight", 0.330597776}, {0, 4, "gradient", 1.59125786}, {0, 4,
    "consistency", 0.252672882}, {0, 5, "loss", 1.22000118}, {0, 5, "supervised", 1.03212516}, {0,
    5, "ce", 1.04991624}, {0, 5, "dice", 0.955227829}, {0, 5, "distance", 0.256324434}, {0, 5,
    "weight", 0.573009594}, {0, 5, "gradient", 0.249001631}, {0, 5, "consistency", 0.327875868}, {0,
    6, "loss", 1.37170365}, {0, 6, "supervised", 1.12039586}, {0, 6, "ce", 1.31613781}, {0, 6,
    "dice", 0.970799486}, {0, 6, "distance", 0.498654583}, {0, 6, "weight", 0.898657928}, {0, 6,
    "gradient", 1.82713941}, {0, 6, "consistency", 0.279647886}, {0, 7, "loss", 1.52813841}, {0, 7,
    "supervised", 1.11341631}, {0, 7, "ce", 1.0151387}, {0, 7, "dice", 0.972308636}, {0, 7,
    "distance", 0.470358907}, {0, 7, "weight", 1.2752563}, {0, 7, "gradient", 3.50938943}, {0, 7,
    "consistency", 0.325206862}, {0, 8, "loss", 1.69584525}, {0, 8, "supervised", 1.12388249}, {0,
    8, "ce", 1.29802932}, {0, 8, "dice", 0.945996178}, {0, 8, "distance", 0.592954367}, {0, 8,
    "weight", 1.63746151}, {0, 8, "gradient", 5.9495829}, {0, 8, "consistency", 0.349298447}, {0, 9,
    "loss", 1.71775687}, {0, 9, "supervised", 1.14457694}, {0, 9, "ce", 1.30974357}, {0, 9, "dice",
    0.957413246}, {0, 9, "distance", 0.623878985}, {0, 9, "weight", 1.90245885}, {0, 9, "gradient",
    6.85855847}, {0, 9, "consistency", 0.301283747}
};
static const struct golden_run golden_runs_dtc[] = {
    {.name = "dtc_two", .classes = 2, .channels = 1, .has_mask = 1, .labeled = 5, .unlabeled = 6,
     .notes = golden_notes_dtc_two, .n_notes = 80, .prototypes = NULL,
     .set = {.method = (char[]){"dtc"}, .seed = 61, .steps = 10, .patch = {32, 32, 32}, .batch = 4,
             .labeled_batch = 2, .filters = 2, .dropout = NET_DROPOUT_BOTH, .augment = AUGMENT_CROP,
             .dice_share = 0.5, .optimizer = OPTIM_SGD, .schedule = SCHEDULE_STEP, .lr = 5e-05,
             .momentum = 0.9, .weight_decay = 0.1, .clip = 0.0, .ema_decay = 0.99, .consistency =
             50.0, .teacher_noise = 0.1, .ramp = RAMP_STEPS, .sup_dice = 1, .ssn_rank = 8,
             .mc_samples = 6, .ged_metric = GED_CLASS_MEAN, .head_norm = 0, .nb_rule = NB_CENTRED,
             .bcl_layout = BCL_CORRECT, .bcl_reduce = BCL_MEAN, .bcl_cap = 150, .lambda_c = 0.09,
             .bcl_tau = 0.07, .proto_ckpt = PROTO_LAST, .proto_update = 1, .lambda_r = 0.1, .pcl_tau
             = 100.0, .pcl_ignore_bg = 1, .pcl_cov = PCL_DIAGONAL, .pseudo_weight = 1.0,
             .pseudo_threshold = 0.0, .stage2_init = STAGE2_FRESH, .stage2_cov = 0, .stage2_paste =
             0, .stage2_share = 1.0, .stages = 2, .paste_warmup = 0.25, .paste_size =
             0.6666666666666666, .paste_weight = 0.5}},
    {.name = "dtc_three", .classes = 3, .channels = 2, .has_mask = 1, .labeled = 5, .unlabeled = 6,
     .notes = golden_notes_dtc_three, .n_notes = 80, .prototypes = NULL,
     .set = {.method = (char[]){"dtc"}, .seed = 62, .steps = 10, .patch = {32, 32, 32}, .batch = 3,
             .labeled_batch = 1, .filters = 2, .dropout = NET_DROPOUT_BOTH, .augment = AUGMENT_CROP,
             .dice_share = 0.5, .optimizer = OPTIM_SGD, .schedule = SCHEDULE_POLY, .lr = 2e-05,
             .momentum = 0.9, .weight_decay = 0.1, .clip = 0.0, .ema_decay = 0.99, .consistency =
             2.0, .teacher_noise = 0.1, .ramp = RAMP_CONTINUOUS, .sup_dice = 1, .ssn_rank = 8,
             .mc_samples = 6, .ged_metric = GED_CLASS_MEAN, .head_norm = 0, .nb_rule = NB_CENTRED,
             .bcl_layout = BCL_CORRECT, .bcl_reduce = BCL_MEAN, .bcl_cap = 150, .lambda_c = 0.09,
             .bcl_tau = 0.07, .proto_ckpt = PROTO_LAST, .proto_update = 1, .lambda_r = 0.1, .pcl_tau
             = 100.0, .pcl_ignore_bg = 1, .pcl_cov = PCL_DIAGONAL, .pseudo_weight = 1.0,
             .pseudo_threshold = 0.0, .stage2_init = STAGE2_FRESH, .stage2_cov = 0, .stage2_paste =
             0, .stage2_share = 1.0, .stages = 2, .paste_warmup = 0.25, .paste_size =
             0.6666666666666666, .paste_weight = 0.5}},
};
